"""What every kind of exam owes."""

import language
import numpy as np
import pytest
import zoo

import layerscope as ls
from layerscope.errors import ModelError
from layerscope.evaluation.exam import exam
from layerscope.evaluation.sitting import joined


def sittings():
    classes = ls.task(language.frame().assign(label=[0, 1, 2] * 4))
    yield exam(ls.load(zoo.network("bert"), tokenizer=zoo.tokenizer()), classes)
    yield exam(language.model(), ls.task(language.frame(), kind="text"), max_length=16)
    yield exam(language.model("bert", "masked"), ls.task(language.frame()))


def test_a_score_is_the_value_with_its_interval_and_provenance():
    for sitting in sittings():
        answers = sitting.logits()
        score, (low, high) = sitting.score(answers), sitting.interval(answers)
        assert low <= float(score) <= high
        assert float(score) == sitting.value(answers) == score.metrics[sitting.metric]
        assert score.n == len(answers) == len(sitting.texts)
        assert score.provenance["settings"]["metric"] == sitting.metric
        assert score.higher_is_better == sitting.higher_is_better
        some = np.arange(6)
        assert sitting.score(answers, some).n == 6


def test_the_same_exam_of_another_model():
    for sitting in sittings():
        smaller = ls.load(ls.truncate(sitting.model, 2))
        other = sitting.of(smaller)
        assert other.model is smaller
        assert len(other.examples) == len(sitting.examples)
        assert other.logits().shape == sitting.logits().shape
        assert other.spec() != sitting.spec()


def test_windows_with_fewer_choices_are_filled_up():
    parts = joined([np.zeros((2, 3)), np.ones((1, 2))])
    assert parts.tolist() == [[0, 0, 0], [0, 0, 0], [1, 1, -np.inf]]


def test_numbers_that_are_none_have_no_score():
    import torch

    opened = language.model()
    with torch.no_grad():
        opened.network.model.layers[1].mlp.down_proj.weight[0] = float("nan")
    with pytest.raises(ModelError, match="not"):
        ls.evaluate(opened, ls.task(language.frame(), kind="text"), max_length=16)
