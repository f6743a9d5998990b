"""Batches of like cost, memory that runs out, and work that is done ahead."""

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from layerscope.errors import InputError
from layerscope.extraction.loop import Batches, ahead


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


def test_so_many_parts_wait_and_no_more():
    made, room = [], threading.Semaphore(0)

    def prepare(part):
        made.append(part)
        room.release()
        return part

    parts = ahead(iter(range(10)), prepare, depth=3)
    assert next(parts) == 0
    for _ in range(4):
        assert room.acquire(timeout=10)
    assert made == [0, 1, 2, 3]  # one is used, three wait
    parts.close()
    assert len(made) <= 5


def test_what_is_prepared_is_what_is_run_also_after_memory_ran_out():
    threads, ran = set(), []

    def prepare(places):
        threads.add(threading.current_thread().name)
        return tuple(places.tolist())

    def run(ready):
        if len(ready) > 2:
            raise RuntimeError("out of memory")
        ran.append(ready)
        return ready

    found = list(Batches(60).over(np.full(9, 10), run, prepare=prepare))
    assert [tuple(places.tolist()) for places, _ in found] == ran == [result for _, result in found]
    assert sorted(place for batch in ran for place in batch) == list(range(9))
    assert threading.current_thread().name not in threads
