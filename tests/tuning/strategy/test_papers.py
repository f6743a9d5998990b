"""The strategies of the papers, each of which can be parsed for any depth."""

import pytest

import layerscope as ls
from layerscope.tuning.strategy import WU, XIE, every, middle, middle_layer, of_preset


@pytest.mark.parametrize("depth", [2, 6, 12, 24])
def test_every_strategy_can_be_parsed(depth):
    names = every(depth)
    assert len(names) == len(set(names))
    assert {"full", "head-only", *XIE, *WU} <= set(names)
    for name in names:
        assert ls.Strategy.parse(name)


def test_middle_layers_of_a_depth():
    """Xie et al. 2022, section 4.2: the middle layer of the 24 of RoBERTa-large is 13."""
    assert middle_layer(24) == 13
    assert (
        middle(24)
        == middle(6)
        == ("(m, m, m)", "(m-1, m, m)", "(m-2, m, m)", "(m, m, L)", "(m-1, m, L)", "(m-2, m, L)")
    )
    assert [str(ls.Strategy.parse(name).resolve(24)) for name in middle(24)[3:]] == [
        *("(13, 13, 24)", "(12, 13, 24)", "(11, 13, 24)"),
    ]
    assert middle(2)[:2] == ("(m, m, m)", "(m-1, m, m)")  # never below the first block
    assert len(middle(2)) == 4
    assert middle_layer(1) == 1


def test_a_preset_has_the_strategies_of_its_paper():
    assert of_preset("wu2020", 12) == list(WU)
    assert of_preset(None, 12) == of_preset("xie2022", 12) == [*XIE, *middle(12)]
