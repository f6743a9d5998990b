"""Batches on their way to the device: padding, one copy, and pooling that nothing waits for."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from layerscope.extraction.forward import Packed, Pooling, padded, padded_arrays, pooling_arrays
from layerscope.extraction.items import Item, Items
from tests.helpers.models import NoWaiting


def drawn(seed, count, most=4):
    generator = np.random.default_rng(seed)
    items = []
    for _ in range(count):
        length = int(generator.integers(1, 9))
        take = generator.permutation(length)[: generator.integers(1, length + 1)]
        segment = np.unique(generator.integers(0, most, len(take)), return_inverse=True)[1]
        own = generator.integers(1, 50, length), generator.integers(0, 2, length)
        items.append(Item(*own, take, segment, np.arange(segment.max() + 1), False, np.zeros(length, bool)))
    return items


@given(st.integers(0, 10**6), st.integers(1, 8), st.booleans())
def test_padding_on_either_side(seed, count, left):
    items = drawn(seed, count)
    batch = padded(items, 99, left)
    longest = max(map(len, items))
    for i, item in enumerate(items):
        gap = longest - len(item)
        real = slice(gap, None) if left else slice(None, len(item))
        rest = slice(None, gap) if left else slice(len(item), None)
        assert batch["input_ids"][i, real].tolist() == item.ids.tolist()
        assert batch["token_type_ids"][i, real].tolist() == item.types.tolist()
        assert batch["attention_mask"][i, real].all()
        assert (batch["input_ids"][i, rest] == 99).all()
        assert not batch["attention_mask"][i, rest].any()
    assert "token_type_ids" not in padded([Item(*[np.arange(2), None, *[np.zeros(1, int)] * 3, False, np.zeros(2)])], 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@given(seed=st.integers(0, 10**6), count=st.integers(1, 6), further=st.integers(0, 3), most=st.sampled_from([1, 4]))
def test_rows_are_tokens_or_means_of_them(dtype, seed, count, further, most):
    """Compared with a loop over items, also where the network pads the texts further by itself."""
    items = drawn(seed, count, most)
    longest = max(map(len, items))
    generator = torch.Generator().manual_seed(seed)
    states = torch.randn(count, longest + further, 3, generator=generator).to(dtype)
    states[0, longest:] = float("nan")  # what stands in padding is never looked at
    with NoWaiting():
        pooled = Pooling(Packed(pooling_arrays(Items.from_list(items)), torch.device("cpu")).on_device(), longest)(
            states
        )
    expected = [
        states[i, torch.from_numpy(item.take[item.segment == row])].float().mean(dim=0)
        for i, item in enumerate(items)
        for row in range(len(item.unit))
    ]
    assert pooled.dtype == torch.float32
    torch.testing.assert_close(pooled, torch.stack(expected), rtol=1e-5, atol=1e-6)


def test_what_is_packed_arrives_under_its_name_in_its_shape():
    arrays = {"a": np.arange(6).reshape(2, 3), "b": np.asarray([True, False]), "c": np.zeros((0,), np.int64)}
    there = Packed(arrays, torch.device("cpu")).on_device()
    assert {name: tensor.tolist() for name, tensor in there.items()} == {
        "a": [[0, 1, 2], [3, 4, 5]],
        "b": [1, 0],
        "c": [],
    }
    assert all(tensor.dtype == torch.int64 for tensor in there.values())


def test_a_token_for_each_row_needs_no_means():
    items = Items.from_list(drawn(3, 4))
    assert set(pooling_arrays(items)) == {"pooled_places", "pooled_offsets"}
    single = items.keep(np.ones(int(items.rows.sum()), bool))
    single.take, single.segment, single.take_counts = single.take[:0], single.segment[:0], single.take_counts * 0
    single.unit, single.rows = single.unit[:0], single.rows * 0
    assert set(pooling_arrays(single)) == {"pooled_places"}
    assert padded_arrays(single, 0)["input_ids"].shape[0] == 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("longer", [0, 3])  # Longformer pads to a multiple of its window
def test_what_is_not_a_token_of_the_text_counts_for_nothing(dtype, longer):
    """A NaN in padding or in special tokens is in no mean."""
    generator = np.random.default_rng(0)
    items = []
    for length in (5, 2, 7, 1):
        take = np.sort(generator.permutation(length)[: max(1, length - 2)])
        zeros = np.zeros(length, np.int64)
        items.append(Item(zeros, None, take, np.zeros(len(take), np.int64), np.arange(1), False, zeros.astype(bool)))
    states = torch.randn(4, 7 + longer, 6).to(dtype)
    for i, item in enumerate(items):
        states[i, [t for t in range(7 + longer) if t not in item.take]] = torch.nan
    packed = Packed(pooling_arrays(Items.from_list(items)), torch.device("cpu"))
    with NoWaiting():
        pooled = Pooling(packed.on_device(), 7)(states)
    expected = torch.stack([states[i, torch.from_numpy(item.take)].float().mean(dim=0) for i, item in enumerate(items)])
    assert pooled.dtype == torch.float32
    torch.testing.assert_close(pooled, expected, rtol=1e-5, atol=1e-6)
