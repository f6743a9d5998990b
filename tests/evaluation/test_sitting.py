"""What every kind of exam owes."""

import language
import numpy as np
import pytest
import zoo

import layerscope as ls
from layerscope.errors import ModelError
from layerscope.evaluation.exam import exam
from layerscope.evaluation.sitting import joined
from layerscope.extraction import loop
from layerscope.extraction.packing import Coming


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


def test_answers_of_a_window_are_read_when_the_next_one_is_under_way(monkeypatch):
    """And the network is prepared once, whatever the windows and batches are."""
    monkeypatch.setattr(loop, "WINDOW", 5)
    for one in sittings():
        expected, sitting = one.logits(), one.of(one.model)
        sitting.model.network.train()
        seen, switched = [], []
        train, answers, numpy = type(sitting.model.network).train, type(sitting)._answers, Coming.numpy

        def counted(self, mode=True, *, sitting=sitting, switched=switched, train=train):
            if self is sitting.model.network:
                switched.append(mode)
            return train(self, mode)

        def asked(self, question, act, *, seen=seen, answers=answers):
            seen.append(f"{question.texts} asked")
            return answers(self, question, act)

        def read(self, *, seen=seen, numpy=numpy):
            seen.append("read")
            return numpy(self)

        with monkeypatch.context() as patch:
            patch.setattr(type(sitting.model.network), "train", counted)
            patch.setattr(type(sitting), "_answers", asked)
            patch.setattr(Coming, "numpy", read)
            found, _ = sitting.answers(sitting.examples)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        first = seen.index("read")
        assert sum(int(note.split()[0]) for note in seen[:first]) > 5  # texts of the second window too
        assert switched in ([False, True], [False, False, False, True])  # the sitting's own, and the runner's within it
