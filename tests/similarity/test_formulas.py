"""Formulas belong to measures, and every one is typeset."""

from layerscope.reporting.formulas import known
from layerscope.similarity.formulas import CALIBRATED, CALIBRATED_DISTANCE, FORMULAS
from layerscope.similarity.registry import registry


def test_every_formula_belongs_to_a_measure_and_is_typeset():
    assert set(FORMULAS) <= set(registry())
    assert {*FORMULAS.values(), CALIBRATED, CALIBRATED_DISTANCE} <= set(known())
