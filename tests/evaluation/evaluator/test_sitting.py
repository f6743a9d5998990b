"""What every kind of exam owes."""

import numpy as np
import pytest

import layerscope as ls
from layerscope.errors import ModelError
from layerscope.evaluation.evaluate import make_evaluator
from layerscope.evaluation.evaluator import joined
from layerscope.extraction import loop
from layerscope.extraction.forward import PendingCopy
from tests.helpers.data import text_frame
from tests.helpers.models import language_model, random_network, word_tokenizer


def evaluators():
    classes = ls.task(text_frame().assign(label=[0, 1, 2] * 4))
    yield make_evaluator(ls.load(random_network("bert"), tokenizer=word_tokenizer()), classes)
    yield make_evaluator(language_model(), ls.task(text_frame(), kind="text"), max_length=16)
    yield make_evaluator(language_model("bert", "masked"), ls.task(text_frame()))


def test_a_score_is_the_value_with_its_interval_and_provenance():
    for evaluator in evaluators():
        answers = evaluator.logits()
        score, (low, high) = evaluator.score(answers), evaluator.interval(answers)
        assert low <= float(score) <= high
        assert float(score) == evaluator.value(answers) == score.metrics[evaluator.metric]
        assert score.n == len(answers) == len(evaluator.texts)
        assert score.provenance["settings"]["metric"] == evaluator.metric
        assert score.higher_is_better == evaluator.higher_is_better
        some = np.arange(6)
        assert evaluator.score(answers, some).n == 6


def test_the_same_exam_of_another_model():
    for evaluator in evaluators():
        smaller = ls.load(ls.truncate(evaluator.model, 2))
        other = evaluator.with_model(smaller)
        assert other.model is smaller
        assert len(other.examples) == len(evaluator.examples)
        assert other.logits().shape == evaluator.logits().shape
        assert other.spec() != evaluator.spec()


def test_windows_with_fewer_choices_are_filled_up():
    parts = joined([np.zeros((2, 3)), np.ones((1, 2))])
    assert parts.tolist() == [[0, 0, 0], [0, 0, 0], [1, 1, -np.inf]]


def test_numbers_that_are_none_have_no_score():
    import torch

    opened = language_model()
    with torch.no_grad():
        opened.network.model.layers[1].mlp.down_proj.weight[0] = float("nan")
    with pytest.raises(ModelError, match="not"):
        ls.evaluate(opened, ls.task(text_frame(), kind="text"), max_length=16)


def test_answers_of_a_window_are_read_when_the_next_one_is_under_way(monkeypatch):
    """And the network is prepared once, whatever the windows and batches are."""
    monkeypatch.setattr(loop, "WINDOW", 5)
    for one in evaluators():
        expected, evaluator = one.logits(), one.with_model(one.model)
        evaluator.model.network.train()
        seen, switched = [], []
        train, answers, numpy = type(evaluator.model.network).train, type(evaluator)._answers, PendingCopy.numpy

        def counted(self, mode=True, *, evaluator=evaluator, switched=switched, train=train):
            if self is evaluator.model.network:
                switched.append(mode)
            return train(self, mode)

        def asked(self, question, act, *, seen=seen, answers=answers):
            seen.append(f"{question.texts} asked")
            return answers(self, question, act)

        def read(self, *, seen=seen, numpy=numpy):
            seen.append("read")
            return numpy(self)

        with monkeypatch.context() as patch:
            patch.setattr(type(evaluator.model.network), "train", counted)
            patch.setattr(type(evaluator), "_answers", asked)
            patch.setattr(PendingCopy, "numpy", read)
            found, _ = evaluator.answers(evaluator.examples)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        first = seen.index("read")
        assert sum(int(note.split()[0]) for note in seen[:first]) > 5  # texts of the second window too
        assert switched in ([False, True], [False, False, False, True])  # the sitting's own, and the runner's within it
