"""Changes on the rows that confirm, for every kind of exam, in the units of their metric."""

import language
import numpy as np
import pandas
import pytest
import zoo

import layerscope as ls
from layerscope.cutting.judging import Judge
from layerscope.cutting.sweep import sweep
from layerscope.cutting.tolerance import Tolerance
from layerscope.evaluation.exam import exam

PLANS = [ls.LayerPlan([1, 2, 3, 4]), ls.LayerPlan([1, 2, 3]), ls.LayerPlan([1, 3, 4])]
PAIRS = pandas.DataFrame(
    {"sentence1": language.texts(30), "sentence2": language.texts(30, seed=1), "label": np.linspace(0, 5, 30)}
)


def sittings():
    text = ls.task(language.frame(30, least=4), kind="text")
    for metric in ("perplexity", "nll", "bits_per_byte"):
        yield exam(language.model(), text, max_length=16, metric=metric)
    yield exam(language.model("bert", "masked"), ls.task(language.frame(30)), metric="accuracy")
    choices = pandas.DataFrame({"text": language.texts(30), "endings": [["a list", "of"]] * 30, "label": [0, 1] * 15})
    yield exam(language.model(), ls.task(choices, choices="endings"), metric="acc_norm")
    yield exam(ls.load(zoo.network("bert", "encoder"), tokenizer=zoo.tokenizer()), PAIRS)


def test_changes_are_those_of_the_score():
    for sitting in sittings():
        answers = sweep(sitting, PLANS, "test")
        rows = np.arange(0, len(sitting.examples), 2)
        judge = Judge(sitting, answers, rows, Tolerance.parse("10%", sitting.metric))
        whole = sitting.value(answers[0], rows)
        sign = 1 if sitting.higher_is_better else -1
        for place in (1, 2):
            expected = sign * (sitting.value(answers[place], rows) - whole)
            exact = sitting.metric in ("perplexity", "nll", "bits_per_byte", "accuracy", "acc_norm")
            tolerance = {"rel": 1e-4, "abs": 1e-5} if exact else {"abs": 0.05}  # a jackknife of a correlation
            assert judge.told(judge.changes(place).mean) == pytest.approx(expected, **tolerance)
        assert judge.told(-judge.limit) == pytest.approx(-0.1 * abs(whole), rel=1e-5)
