"""The one loop: windows, batches of like cost, and memory that runs out."""

import functools
import threading
from dataclasses import replace

import numpy as np
import pytest
import torch
import zoo
from hypothesis import given
from hypothesis import strategies as st
from quick import model as model_of

import layerscope as ls
from layerscope.errors import InputError
from layerscope.extraction import loop
from layerscope.extraction.loop import Batches, Loop, ahead, parts_of
from layerscope.extraction.reading import Reading


def test_out_of_memory_halves_the_batch_and_goes_on(task, monkeypatch, caplog):
    model = model_of("bert")
    expected = ls.extract(model, task, store=False)
    sizes = []
    original = model.network.forward

    @functools.wraps(original)
    def scarce(input_ids, **kwargs):
        sizes.append(input_ids.numel())
        if input_ids.numel() > 90:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(input_ids=input_ids, **kwargs)

    monkeypatch.setattr(model.network, "forward", scarce)
    reps = ls.extract(model, task, store=False)
    assert max(sizes) > 90
    assert "going on with" in caplog.text
    for layer in reps.layers:
        torch.testing.assert_close(reps[layer], expected[layer], rtol=1e-4, atol=1e-5)

    monkeypatch.setattr(model.network, "forward", lambda **_: (_ for _ in ()).throw(torch.OutOfMemoryError("no")))
    with pytest.raises(InputError, match=r"single text of .* tokens does not fit"):
        ls.extract(model, task, store=False)


def test_other_runtime_errors_are_not_taken_for_memory(task, monkeypatch):
    model = model_of("bert")
    monkeypatch.setattr(
        model.network.embeddings, "forward", lambda *a, **k: (_ for _ in ()).throw(RuntimeError("boom"))
    )
    with pytest.raises(RuntimeError, match="boom"):
        ls.extract(model, task, store=False)


def over(batches, costs, kinds=None):
    """The places of every batch."""
    found = batches.over(np.asarray(costs), lambda places: None, None if kinds is None else np.asarray(kinds))
    return [places.tolist() for places, _ in found]


@given(
    costs=st.lists(st.integers(1, 50), max_size=40),
    budget=st.integers(1, 200),
    most=st.none() | st.integers(1, 5),
    seed=st.integers(0, 5),
)
def test_every_portion_once_within_the_budget_and_the_costliest_first(costs, budget, most, seed):
    kinds = np.random.default_rng(seed).integers(0, 4, len(costs))
    for given_kinds in (None, kinds):
        batches = over(Batches(budget, most), costs, given_kinds)
        wanted = [k for k in range(len(costs)) if given_kinds is None or kinds[k] > 0]  # kind 0 is left out
        assert sorted(place for batch in batches for place in batch) == wanted
        for batch in batches:
            assert len(batch) == 1 or len(batch) * max(costs[k] for k in batch) <= budget
            assert len(batch) <= (most or len(batch))
            assert given_kinds is None or len({kinds[k] for k in batch}) == 1  # kinds never mix
        for kind in {0} if given_kinds is None else set(kinds.tolist()):
            order = [costs[k] for batch in batches for k in batch if given_kinds is None or kinds[k] == kind]
            assert order == sorted(order, reverse=True)


def test_equal_costs_keep_their_order():
    assert over(Batches(20), [5, 9, 5, 9, 5]) == [[1, 3], [0, 2, 4]]
    with pytest.raises(InputError, match="batch_tokens is 0; it must be at least 1"):
        Batches(0)


def test_where_memory_runs_out_the_same_portions_are_tried_again_in_halves(caplog):
    tried = []

    def run(places):
        tried.append(len(places))
        if len(places) > 2:
            raise RuntimeError("[enforce fail] can't allocate memory")
        return len(places)

    batches = Batches(80)
    found = list(batches.over(np.full(10, 10), run))
    assert tried == [8, 4, 2, 2, 2, 2, 2]
    assert sorted(place for places, _ in found for place in places) == list(range(10))
    assert batches.budget == 20  # and stays there
    assert "going on with 4 texts" in caplog.text


def test_windows_are_of_one_size_and_know_where_they_start(task, monkeypatch):
    monkeypatch.setattr(loop, "WINDOW", 3)
    examples = task.split()
    assert [len(part) for part in parts_of(examples)] == [3, 3, 1]
    one = Loop.over_tokens([model_of("bert")], Reading())
    windows = list(one.windows(parts_of(examples)))
    assert [window.start for window in windows] == [0, 3, 6]
    (items,) = one.items(examples)
    assert [len(item) for item in items] == [len(item) for window in windows for item in window.items[0]]
    seen = [window.start + place for window, places, _ in one.over(examples, lambda *_: None, "t") for place in places]
    assert sorted(seen) == list(range(7))


def test_the_next_part_is_prepared_while_one_is_used():
    prepared, used = [], []
    second = threading.Event()

    def prepare(part):
        prepared.append((part, threading.current_thread() is threading.main_thread()))
        if part == 1:
            second.set()
        return part

    for part in ahead(range(4), prepare):
        if part == 0:
            assert second.wait(10)  # part 1 is made in another thread before it is asked for
        used.append(part)
    assert used == [0, 1, 2, 3]
    assert prepared == [(part, False) for part in range(4)]
    assert list(ahead([], prepare)) == []


def test_an_error_of_the_preparation_comes_through_in_its_turn():
    def prepare(part):
        if part == 2:
            raise InputError("part 2 cannot be read")
        return part

    used = []
    with pytest.raises(InputError, match="part 2"):
        used.extend(iter(ahead(range(4), prepare)))
    assert 2 not in used


def test_where_a_model_sees_padding_a_batch_has_one_length(task):
    usual = model_of("bert")
    strict = replace(usual, anatomy=replace(usual.anatomy, unpadded=True))
    lengths = {}
    for models in ([usual], [strict], [usual, strict]):
        texts = Loop.over_tokens(models, Reading("mean"), tokens=64)
        (window,) = texts.windows([task.split()])
        items = window.items[0]
        lengths[len(models), models[0].anatomy.unpadded] = [
            [len(items[i]) for i in places] for places, _ in texts.through(window, lambda _, places: places)
        ]
    assert any(len(set(batch)) > 1 for batch in lengths[1, False])
    for batches in (lengths[1, True], lengths[2, False]):
        assert all(len(set(batch)) == 1 for batch in batches)
        assert any(len(batch) > 1 for batch in batches)
        assert [batch[0] for batch in batches] == sorted((batch[0] for batch in batches), reverse=True)
        assert sorted(n for batch in batches for n in batch) == sorted(map(len, items))
    kinds = np.arange(len(items)) % 3  # those of kind 0 are left out
    for places, _ in texts.through(window, lambda _, places: places, lambda _: (kinds + 1, kinds)):
        assert len({(int(kinds[i]), len(items[i])) for i in places}) == 1
        assert kinds[places].all()


def test_tokens_of_two_tokenizers_are_no_common_rows(task):
    cased = zoo.tokenizer()
    cased.truncation_side = "left"
    models = [model_of("bert"), ls.load(zoo.network("bert", "encoder"), tokenizer=cased)]
    with pytest.raises(InputError, match="needs models with one and the same tokenizer"):
        Loop.over_tokens(models, Reading("tokens")).items(task.split())
    assert len(Loop.over_tokens(models, Reading("mean")).items(task.split())) == 2
