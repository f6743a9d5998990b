"""Distances of attention matrices against all permutations, and on models."""

from itertools import permutations

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError
from layerscope.similarity.attention.weight_similarity import MATRICES, head_matrices, matched_distance
from tests.helpers.models import FAMILIES, random_network, word_tokenizer


def model(family, seed=0, **changes):
    return ls.load(random_network(family, "encoder", seed=seed, **changes), tokenizer=word_tokenizer(family))


@pytest.mark.parametrize("seed", range(3))
def test_the_best_of_all_permutations(seed):
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(4, 3, 5, generator=generator, dtype=torch.float64) for _ in range(2))
    scale = ((a.pow(2).sum() + b.pow(2).sum()) / 2).sqrt()
    every = {order: float((a - b[list(order)]).norm() / scale) for order in permutations(range(4))}
    distance, unpermuted, order = matched_distance(a, b)
    assert distance == pytest.approx(min(every.values()))
    assert every[tuple(order)] == pytest.approx(distance)
    assert unpermuted == pytest.approx(every[0, 1, 2, 3])


@pytest.mark.parametrize("family", FAMILIES)
def test_heads_in_another_order_are_found(family):
    a, b = model(family), model(family)
    other = ls.compare_weights(a, model(family, seed=1)).frame
    assert (other["distance"] > 0.5).all()
    assert (other["distance"] <= other["unpermuted"] + 1e-12).all()
    assert len(other) == 16
    for which in MATRICES:
        view = head_matrices(b, 2, which)
        order = np.roll(np.arange(len(view)), 1)
        view.copy_(view[order].clone())
        found = ls.compare_weights(a, b, which=which).frame.set_index("layer")
        assert found["distance"].max() < 1e-7
        assert found.loc[2, "permutation"] == np.argsort(order).tolist()
        shared = a.architecture.shared  # ALBERT: what changes in one block changes in all
        assert found.loc[3, "permutation"] == (np.argsort(order) if shared else np.arange(len(view))).tolist()
        assert found.loc[2, "unpermuted"] > 0.1


def test_unequal_shapes_are_refused():
    with pytest.raises(InputError, match=r"4 blocks, .* 2"):
        ls.compare_weights(model("bert"), model("bert", num_hidden_layers=2))
    with pytest.raises(InputError, match=r"\(4, 8, 32\) in .* and \(2, 16, 32\)"):
        ls.compare_weights(model("bert"), model("roberta", num_attention_heads=2), which="query")
    zeros = torch.zeros(2, 3, 3, dtype=torch.float64)
    assert matched_distance(zeros, zeros) == (0.0, 0.0, [0, 1])
