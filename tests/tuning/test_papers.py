"""The strategies of the papers, each of which can be parsed for any depth."""

import pytest

import layerscope as ls
from layerscope.tuning.papers import WU, XIE, every, middle, of_preset


@pytest.mark.parametrize("depth", [2, 6, 12, 24])
def test_every_strategy_can_be_parsed(depth):
    names = every(depth)
    assert len(names) == len(set(names))
    assert {"full", "head-only", *XIE, *WU} <= set(names)
    for name in names:
        assert ls.Strategy.parse(name)


def test_middle_layers_of_a_depth():
    assert middle(12) == ("(6, 6, 6)", "(5, 6, 6)", "(4, 6, 6)", "(6, 6, 12)", "(5, 6, 12)", "(4, 6, 12)")
    assert middle(2)[:3] == ("(1, 1, 1)",) * 3  # never below the first block


def test_a_preset_has_the_strategies_of_its_paper():
    assert of_preset("wu2020", 12) == list(WU)
    assert of_preset(None, 12) == of_preset("xie2022", 12) == [*XIE, *middle(12)]
