"""Random blocks."""

from collections import Counter

from layerscope.cutting.rules.random import PER_SIZE, Random
from tests.helpers.data import MadeUpSearch, removed_blocks


def test_as_many_of_each_size_each_once():
    found = removed_blocks(Random().plans(MadeUpSearch(12)), 12)
    assert Counter(map(len, found)) == dict.fromkeys(range(1, 12), PER_SIZE)
    assert len(set(found)) == len(found)
    assert len(Random().plans(MadeUpSearch(2))) == 2  # there are no more


def test_the_seed_decides_and_other_sizes_do_not():
    first, second = (removed_blocks(Random().plans(MadeUpSearch(12, seed=seed)), 12) for seed in (0, 1))
    assert first != second
    assert removed_blocks(Random().plans(MadeUpSearch(12, [4])), 12) == [blocks for blocks in first if len(blocks) == 4]


def test_every_block_may_go():
    drawn = {
        block for seed in range(20) for (block,) in removed_blocks(Random().plans(MadeUpSearch(6, [1], seed=seed)), 6)
    }
    assert drawn == set(range(1, 7))
