"""The route as a value: tables of cases, from the shape of the work and what the machine has."""

from dataclasses import replace

import pytest

from layerscope.similarity.execution_plan import GIB, Resources, Workload, block_rows, choose_plan, spelled, views_of
from layerscope.similarity.moments import all_pairs

SMALL = Resources(host=8 * GIB, device=None, disk=100 * GIB, forward=6e10, products=4e10)
H200 = Resources(host=60 * GIB, device=60 * GIB, disk=50 * GIB, forward=1.5e14, products=3e13)


def layers(count, width, rows, **more):
    return Workload(rows=rows, widths=(width,) * count, pairs=tuple(all_pairs(count)), **more)


def two(count, width, rows, **more):
    """Two models, the layers of one against those of the other."""
    pairs = tuple((i, count + j) for i in range(count) for j in range(count))
    return Workload(rows=rows, widths=(width,) * (2 * count), pairs=pairs, **more)


BASE = layers(13, 768, 10_000, parameters=85_000_000, tokens=300_000, dual=True, primal=False)
LLAMA = layers(33, 4096, 5_000, number=2, parameters=7_000_000_000, tokens=150_000, dual=True, primal=False)


@pytest.mark.parametrize(
    ("facts", "resources", "expected"),
    [
        # BERT-base over 10,000 texts: moments are smaller than rows, and as cheap
        (BASE, SMALL, ("moments", "host", 1, False)),
        (BASE, H200, ("moments", "device", 1, False)),
        # any number of rows: moments do not grow
        (replace(BASE, rows=10_000_000), SMALL, ("moments", "host", 1, False)),
        # few texts: Gram matrices of the rows are cheaper
        (replace(BASE, rows=500), SMALL, ("rows", "host", 1, True)),
        (replace(BASE, rows=500, primal=True), SMALL, ("moments", "host", 1, False)),
        # Llama in bfloat16: the products take 75 GB, the rows 1.4 GB
        (LLAMA, H200, ("rows", "device", 1, True)),
        (replace(LLAMA, dual=False, primal=True), H200, ("rows", "device", 1, False)),
        # a GPU that the weights have filled: rows lie on the host
        (LLAMA, replace(H200, device=GIB), ("rows", "host", 1, False)),
        # neither the device nor the host has room: the store has
        (LLAMA, replace(H200, device=GIB, host=GIB), ("rows", "store", 1, False)),
        (replace(LLAMA, rows=2_000_000), H200, ("moments", "device", 3, False)),
        (LLAMA, replace(H200, device=40 * GIB, host=GIB, disk=0, products=1e12), ("rows", "device", 1, True)),
        # two BERT-base with intervals: the moments of 20 groups take 20 GB, the rows 0.8 GB
        (two(13, 768, 10_000, groups=20), SMALL, ("rows", "host", 1, False)),
        (two(13, 768, 10_000, groups=20), replace(SMALL, host=40 * GIB), ("rows", "host", 1, False)),
        (two(13, 768, 2_000_000, groups=20), replace(SMALL, host=40 * GIB), ("moments", "host", 1, False)),
        # measures of rows and shuffles: the store, where the next measure finds them; memory where the disk is full
        (replace(BASE, row_measures=True), SMALL, ("rows", "store", 1, False)),
        (replace(BASE, row_measures=True), replace(SMALL, disk=0), ("rows", "host", 1, False)),
        (replace(BASE, row_measures=True, rows=10**9), SMALL, ("rows", "store", 1, False)),
        # several processes: no process has all rows in memory, so there are no Gram matrices
        (replace(LLAMA, processes=4), H200, ("rows", "device", 1, False)),
        (replace(BASE, rows=500, processes=2), SMALL, ("moments", "host", 1, False)),
        (replace(BASE, row_measures=True, processes=2), replace(SMALL, disk=0), ("rows", "store", 1, False)),
        # nothing to multiply: what is asked for needs no pairs of views
        (replace(BASE, pairs=(), dual=False, primal=False), SMALL, ("moments", "host", 1, False)),
    ],
)
def test_the_cheapest_route_that_fits(facts, resources, expected):
    route = choose_plan(facts, resources)
    assert (route.keep, route.where, route.passes, route.grams) == expected
    assert str(route)


def test_several_passes_come_with_their_reason():
    route = choose_plan(LLAMA, replace(H200, device=20 * GIB, host=GIB, disk=0, products=1e10))
    assert route.passes == 1  # 1.4 GB of rows fit on the device
    route = choose_plan(replace(LLAMA, rows=200_000), replace(H200, device=20 * GIB, host=GIB, disk=0))
    assert route.passes > 4
    assert route.reason == (
        "the products of all pairs of layers take 70.1 GiB and the rows take 50.4 GiB, and there are 1 GiB for them "
        "on the host, 20 GiB for them on the device, 0 KiB for them on the disk; fewer texts (limit), more memory "
        "(memory) or a store with more room (LAYERSCOPE_HOME) make it one pass"
    )
    assert route.forward_seconds == pytest.approx(route.passes * 2 * 7e9 * 150_000 / 1.5e14)


def test_rows_go_to_the_store_unless_further_passes_take_less():
    """What one pass takes is measured only where the choice hangs on it."""
    asked = []

    def measured(seconds):
        return lambda: asked.append(seconds) or seconds

    small = replace(SMALL, host=2 * GIB, disk=200 * GIB)
    facts = replace(BASE, rows=2_000_000, groups=20, dual=False, primal=True)
    slow, quick = (choose_plan(facts, small, measured(seconds)) for seconds in (1e4, 5.0))
    assert (slow.keep, slow.where, slow.passes, slow.forward_seconds) == ("rows", "store", 1, 1e4)
    assert (quick.keep, quick.where) == ("moments", "host")
    assert quick.passes > 1
    assert quick.forward_seconds == 5.0 * quick.passes
    assert quick.forward_seconds < facts.rows * 13 * 768 * 4 / 5e8  # what it takes to write the rows
    assert "each takes less time than to write the rows and read them again" in quick.reason
    assert asked == [1e4, 5.0]
    for other, resources in ((BASE, SMALL), (LLAMA, H200), (replace(BASE, row_measures=True), small)):
        choose_plan(other, resources, measured(0.0))
    assert asked == [1e4, 5.0]


def test_what_is_kept_leaves_room_for_products():
    for facts in (BASE, LLAMA, replace(LLAMA, number=4), two(13, 768, 10_000, groups=20)):
        for room in (GIB, 4 * GIB, 64 * GIB):
            route = choose_plan(facts, Resources(room, None, 0))
            assert route.size <= room
            assert route.keep == "moments" or min(4 * GIB, room / 4) <= route.room <= room - route.size


def test_a_route_says_what_it_expects():
    sentence = str(choose_plan(LLAMA, H200))
    assert sentence.startswith(
        "rows on the device (1.26 GiB), n x n Gram matrices of them, 1 pass over the texts; about"
    )
    assert choose_plan(LLAMA, H200).forward_seconds == pytest.approx(14, rel=0.01)


def test_blocks_of_rows_take_a_small_part_of_the_room():
    assert block_rows([768] * 13, 10**6, 8 * GIB) == 8192
    assert block_rows([4096] * 33, 10**6, 8 * GIB) * 8 * 4096 * 33 <= GIB
    assert block_rows([4096] * 33, 10**6, 1) == 256  # never so few that products crawl
    assert block_rows([8], 5, GIB) == 5


@pytest.mark.parametrize(("size", "text"), [(512, "0.5 KiB"), (3 << 20, "3 MiB"), (1.5 * GIB, "1.5 GiB")])
def test_sizes_are_spelled(size, text):
    assert spelled(size) == text


def test_views_of_pairs():
    assert views_of([(3, 5), (0, 3)]) == [0, 3, 5]
