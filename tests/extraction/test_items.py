"""Items side by side are the same as items one by one."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from layerscope.extraction.items import Item, Items, ranges


def drawn(seed, count, typed=True, targets=True):
    generator = np.random.default_rng(seed)
    items = []
    for _ in range(count):
        length, rows = int(generator.integers(1, 9)), int(generator.integers(0, 4))
        segment = np.sort(np.concatenate([np.arange(rows), generator.integers(0, max(rows, 1), rows)]))
        items.append(
            Item(
                generator.integers(0, 50, length),
                generator.integers(0, 2, length) if typed else None,
                generator.integers(0, length, len(segment)),
                segment,
                np.sort(generator.choice(20, rows, replace=False)),
                bool(generator.integers(2)),
                generator.integers(0, 2, length).astype(bool),
                generator.integers(0, 50, len(segment)) if targets else None,
            )
        )
    return items


def assert_same(a, b):
    assert (len(a), a.truncated) == (len(b), b.truncated)
    for name in ("ids", "types", "take", "segment", "unit", "special", "targets"):
        one, two = getattr(a, name), getattr(b, name)
        assert (one is None) == (two is None)
        assert one is None or np.array_equal(one, two), name


@given(st.integers(0, 10**6), st.integers(1, 12), st.booleans(), st.booleans())
def test_every_item_comes_back_and_places_choose_among_them(seed, count, typed, targets):
    items = drawn(seed, count, typed, targets)
    together = Items.from_list(items)
    assert len(together) == count
    for one, two in zip(items, together, strict=True):
        assert_same(one, two)
    places = np.random.default_rng(seed).integers(0, count, 7)  # in any order, some twice
    for place, item in zip(places, together.at(places), strict=True):
        assert_same(items[place], item)
    assert_same(together[-1], items[-1])
    for one, two in zip(together[1:3], items[1:3], strict=True):
        assert_same(one, two)
    both = Items.join([together, together.at(places)])
    for one, two in zip(both, [*items, *(items[p] for p in places)], strict=True):
        assert_same(one, two)
    assert Items.from_list(together) is together


@given(st.integers(0, 10**6), st.integers(1, 8))
def test_rows_that_are_left_out_go_with_their_tokens(seed, count):
    items = drawn(seed, count)
    together = Items.from_list(items)
    wanted = np.random.default_rng(seed).integers(0, 2, int(together.rows.sum())).astype(bool)
    start = 0
    for item, kept in zip(items, together.keep(wanted), strict=True):
        own = wanted[start : start + len(item.unit)]
        start += len(item.unit)
        assert kept.unit.tolist() == item.unit[own].tolist()
        expected = [
            (t, x, item.unit[s]) for t, x, s in zip(item.take, item.targets, item.segment, strict=True) if own[s]
        ]
        got = [(t, x, kept.unit[s]) for t, x, s in zip(kept.take, kept.targets, kept.segment, strict=True)]
        assert got == expected
        assert kept.ids.tolist() == item.ids.tolist()


def test_rows_and_owners_of_what_is_taken():
    rest = np.zeros(0, np.int64)
    one = Item(np.arange(3), None, np.asarray([0, 1, 2]), np.asarray([0, 0, 1]), np.asarray([4, 7]), False, rest)
    none = Item(np.arange(1), None, rest, rest, rest, False, rest)
    items = Items.from_list([one, none, one])
    assert items.owner.tolist() == [0, 0, 0, 2, 2, 2]
    assert items.row.tolist() == [0, 0, 1, 2, 2, 3]
    assert len(Items.from_list([])) == 0


def test_ranges_end_to_end():
    assert ranges(np.asarray([5, 0, 9]), np.asarray([2, 0, 3])).tolist() == [5, 6, 9, 10, 11]
