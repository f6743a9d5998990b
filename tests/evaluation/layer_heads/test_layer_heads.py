"""Heads on every layer, trained side by side."""

import math

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError, ModelError
from layerscope.evaluation.layer_heads import LayerHeads, classifier_of, held_out
from tests.helpers.data import three_class_frame
from tests.helpers.models import random_model


@pytest.fixture(scope="module")
def task():
    return ls.task({"train": three_class_frame(48, 0), "validation": three_class_frame(24, 1)})


def test_heads_side_by_side_learn_what_each_learns_alone(task):
    """Without dropout the head of every layer ends where it ends when it is trained alone."""
    base = random_model(hidden_dropout_prob=0.0)
    states = [torch.stack([ls.extract(base, task, split=s)[k] for k in range(5)]) for s in ("train", "validation")]
    labels = [task.split(s).labels for s in ("train", "validation")]
    options = {"learning_rate": 1e-2, "epochs": 4, "batch": 16}

    def fitted(layers):
        heads = LayerHeads(classifier_of(base, task, 0), layers)
        parts = [part[layers] for part in states]
        history = heads.fit(parts[0], labels[0], parts[1], lambda z: (z.argmax(1) == labels[1]).mean(), **options)
        assert history.shape == (4, len(layers))
        scores = heads.scores(parts[1], lambda z: (z.argmax(1) == labels[1]).mean())
        np.testing.assert_allclose(scores, history.max(axis=0))  # the best epoch is kept
        return scores, heads.parameters

    scores, together = fitted([0, 1, 2, 3, 4])
    for k in range(5):
        score, alone = fitted([k])
        assert score[0] == pytest.approx(scores[k])
        for name, value in alone.items():
            torch.testing.assert_close(value[0], together[name][k], rtol=1e-4, atol=1e-5)


def test_a_head_that_reads_all_tokens_is_refused(task):
    with pytest.raises(ModelError, match="reads more than the summary token"):
        LayerHeads(random_model("modernbert", "classifier", classifier_pooling="mean"), [0, 1])


def test_the_rows_that_choose_an_epoch_are_whole_texts_apart():
    texts, labels = np.repeat(np.arange(40), 3), np.repeat(np.arange(40) % 2, 3)
    choosing = held_out(texts, labels, seed=1)
    assert choosing.sum() == 12
    assert not set(texts[choosing]) & set(texts[~choosing])
    assert np.bincount(labels[choosing]).tolist() == [6, 6]
    with pytest.raises(InputError, match="at least 2 are needed"):
        held_out(np.zeros(3, int), np.zeros(3, int))


def scores_in(values):
    return lambda _: float(next(values))


def test_without_a_score_the_latest_epoch_is_kept(task):
    base = random_model(hidden_dropout_prob=0.0)
    states = torch.stack([ls.extract(base, task, split="train")[k] for k in range(5)])
    labels = task.split("train").labels
    made = []
    undefined, rising = iter([math.nan] * 15), iter(range(15))  # three epochs of five layers
    for scores in (undefined, rising):
        heads = LayerHeads(classifier_of(base, task, 0), [0, 1, 2, 3, 4])
        heads.fit(states, labels, states[:, :8], scores_in(scores), learning_rate=1e-2, epochs=3, batch=16)
        made.append(heads.parameters)
    for name, value in made[0].items():
        torch.testing.assert_close(value, made[1][name])
