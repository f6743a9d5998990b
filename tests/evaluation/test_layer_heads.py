"""Heads on every layer, trained side by side."""

import pytest
import torch
from quick import model, rows

import layerscope as ls
from layerscope.errors import ModelError
from layerscope.evaluation.heads import classifier_of
from layerscope.evaluation.layer_heads import LayerHeads


@pytest.fixture(scope="module")
def task():
    return ls.task({"train": rows(48, 0), "validation": rows(24, 1)})


def test_heads_side_by_side_learn_what_each_learns_alone(task):
    """Without dropout the head of every layer ends where it ends when it is trained alone."""
    base = model(hidden_dropout_prob=0.0)
    states = [torch.stack([ls.extract(base, task, split=s)[k] for k in range(5)]) for s in ("train", "validation")]
    labels = [task.split(s).labels for s in ("train", "validation")]
    options = {"learning_rate": 1e-2, "epochs": 4, "batch": 16}

    def fitted(layers):
        heads = LayerHeads(classifier_of(base, task, 0), layers)
        parts = [part[layers] for part in states]
        scores, _ = heads.fit(parts[0], labels[0], parts[1], lambda z: (z.argmax(1) == labels[1]).mean(), **options)
        return scores, heads.parameters

    scores, together = fitted([0, 1, 2, 3, 4])
    for k in range(5):
        score, alone = fitted([k])
        assert score[0] == pytest.approx(scores[k])
        for name, value in alone.items():
            torch.testing.assert_close(value[0], together[name][k], rtol=1e-4, atol=1e-5)


def test_a_head_that_reads_all_tokens_is_refused(task):
    with pytest.raises(ModelError, match="reads more than the summary token"):
        LayerHeads(model("modernbert", "classifier", classifier_pooling="mean"), [0, 1])
