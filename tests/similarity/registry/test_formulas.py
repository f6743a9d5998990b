"""Formulas belong to measures, and every one is typeset."""

from layerscope.registry import MEASURES
from layerscope.reporting.page import formulas
from layerscope.similarity.registry import CALIBRATED, CALIBRATED_DISTANCE, FORMULAS


def test_every_formula_belongs_to_a_measure_and_is_typeset():
    assert set(FORMULAS) <= set(MEASURES)
    assert {*FORMULAS.values(), CALIBRATED, CALIBRATED_DISTANCE} <= set(formulas())
