"""The distance of two outputs of one batch, against plain formulas, and the evaluator that sums it without labels."""

import numpy as np
import pandas
import pytest
import torch

import layerscope as ls
from layerscope.evaluation.divergence import DivergenceEvaluator, apart, real_places
from layerscope.models import Replay
from tests.helpers.data import random_texts, scored_pairs
from tests.helpers.models import random_model, shared_encoder

TEXTS = pandas.DataFrame({"text": random_texts(12, most=9)})


def draw(*shape):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape)))


def test_classes_are_a_distribution_and_numbers_and_vectors_are_not():
    one, two = draw(5, 3), draw(5, 3).flip(0)
    p, q = one.softmax(-1), two.softmax(-1)
    found = apart(one, two, vectors=False)
    torch.testing.assert_close(found[:, 0], (p * (p.log() - q.log())).sum(-1))
    assert found[:, 1].tolist() == (one.argmax(-1) == two.argmax(-1)).float().tolist()
    assert found[:, 2].tolist() == [1.0] * 5
    torch.testing.assert_close(apart(one[:, :1], two[:, :1], vectors=False)[:, 0], (one[:, 0] - two[:, 0]).square())
    cosines = torch.nn.functional.cosine_similarity(one, two, dim=-1)
    torch.testing.assert_close(apart(one, two, vectors=True)[:, 0], 1 - cosines)
    assert float(apart(one, one, vectors=False)[:, 0].abs().max()) == 0


def test_classes_of_which_a_text_may_have_several_are_told_apart_one_by_one():
    """Their softmax was compared, which a shift of all logits does not change."""
    one, two = draw(5, 3), draw(5, 3).flip(0)
    p, q = one.sigmoid(), two.sigmoid()
    expected = p * (p / q).log() + (1 - p) * ((1 - p) / (1 - q)).log()
    found = apart(one, two, vectors=False, several=True)
    torch.testing.assert_close(found[:, 0], expected.sum(-1))
    assert found[:, 1].tolist() == ((one > 0) == (two > 0)).all(-1).float().tolist()
    assert float(apart(one, one + 2, vectors=False, several=True)[:, 0].min()) > 0.1
    model = random_model("bert", "classifier")
    plain = DivergenceEvaluator(model, ls.task(TEXTS), ls.task(TEXTS).split())
    model.network.config.problem_type = "multi_label_classification"
    several = DivergenceEvaluator(model, ls.task(TEXTS), ls.task(TEXTS).split())
    assert several._settings() != plain._settings()
    read = several._reader(several.encoded().at(np.arange(5)), {"input_ids": torch.zeros(5, 3)}, {})
    read({"logits": one})
    torch.testing.assert_close(read({"logits": two})[:, 0], expected.sum(-1))


def test_tokens_count_where_there_are_any():
    one, two = draw(2, 4, 3), draw(2, 4, 3).flip(0)
    mask = torch.tensor([[True, True, False, False], [True, True, True, True]])
    found = apart(one, two, vectors=False, mask=mask)
    by_token = apart(one.reshape(8, 3), two.reshape(8, 3), vectors=False).reshape(2, 4, 3)
    torch.testing.assert_close(found, (by_token * mask[..., None]).sum(1))


@pytest.mark.parametrize("kind", ["classifier", "tags", "choice", "encoder"])
def test_a_model_has_no_distance_from_itself_and_some_from_its_lower_layers(kind):
    model = random_model("bert", kind) if kind != "encoder" else shared_encoder()
    if kind != "encoder":
        model.network.classifier.weight.data.mul_(100)  # a random head gives nearly the same to all
    frame = scored_pairs(12)[["a", "b"]].assign(text=TEXTS["text"])
    task = ls.task(frame, text="text", choices=["a", "b"]) if kind == "choice" else ls.task(frame, text="text")
    evaluator = DivergenceEvaluator(model, task, task.split(), 16)

    def act(inputs, read):
        replay = Replay(evaluator.subject, inputs)
        return torch.stack([read(replay.result), read(replay.finish(replay.states[1]))])

    whole, lower = evaluator.logits(act)
    assert np.abs(whole[:, 0]).max() < 1e-6
    assert lower[:, 0].mean() > 1e-5
    assert (lower[:, 2] >= 1).all()
    assert evaluator.value(whole) == pytest.approx(0, abs=1e-6)
    low, high = evaluator.interval(lower)
    assert low <= evaluator.value(lower) <= high


def test_places_are_counted_from_the_side_that_is_not_padded():
    model, task = shared_encoder(), ls.task(TEXTS)
    items = DivergenceEvaluator(model, task, task.split(), 16).encoded()
    time = max(map(len, items))
    right, left = real_places(items, time, False), real_places(items, time, True)
    assert right.sum(1).tolist() == left.sum(1).tolist() == [len(item) for item in items]
    assert torch.equal(right, left.flip(1))
    assert right[:, 0].all()
