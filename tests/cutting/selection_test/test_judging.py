"""Changes on the rows that confirm, for every kind of exam, in the units of their metric."""

import numpy as np
import pandas
import pytest

import layerscope as ls
from layerscope.cutting.selection_test import Comparison
from layerscope.cutting.sweep import sweep
from layerscope.cutting.targets import Tolerance
from layerscope.evaluation.evaluate import make_evaluator
from tests.helpers.data import random_texts, text_frame
from tests.helpers.models import language_model, random_network, word_tokenizer

PLANS = [ls.LayerPlan([1, 2, 3, 4]), ls.LayerPlan([1, 2, 3]), ls.LayerPlan([1, 3, 4])]
PAIRS = pandas.DataFrame(
    {"sentence1": random_texts(30), "sentence2": random_texts(30, seed=1), "label": np.linspace(0, 5, 30)}
)


def evaluators():
    text = ls.task(text_frame(30, least=4), kind="text")
    for metric in ("perplexity", "nll", "bits_per_byte"):
        yield make_evaluator(language_model(), text, max_length=16, metric=metric)
    yield make_evaluator(language_model("bert", "masked"), ls.task(text_frame(30)), metric="accuracy")
    choices = pandas.DataFrame({"text": random_texts(30), "endings": [["a list", "of"]] * 30, "label": [0, 1] * 15})
    yield make_evaluator(language_model(), ls.task(choices, choices="endings"), metric="acc_norm")
    yield make_evaluator(ls.load(random_network("bert", "encoder"), tokenizer=word_tokenizer()), PAIRS)


def test_changes_are_those_of_the_score():
    for evaluator in evaluators():
        answers = sweep(evaluator, PLANS, "test")
        rows = np.arange(0, len(evaluator.examples), 2)
        judge = Comparison(evaluator, answers, rows, Tolerance.parse("10%", evaluator.metric))
        whole = evaluator.value(answers[0], rows)
        sign = 1 if evaluator.higher_is_better else -1
        for place in (1, 2):
            expected = sign * (evaluator.value(answers[place], rows) - whole)
            exact = evaluator.metric in ("perplexity", "nll", "bits_per_byte", "accuracy", "acc_norm")
            tolerance = {"rel": 1e-4, "abs": 1e-5} if exact else {"abs": 0.05}  # a jackknife of a correlation
            assert judge.in_metric(judge.changes(place).mean) == pytest.approx(expected, **tolerance)
        assert judge.in_metric(-judge.limit) == pytest.approx(-0.1 * abs(whole), rel=1e-5)
