"""Rules by name, and those that fit a model."""

import pytest

from layerscope.cutting.search import chosen_rules
from layerscope.errors import InputError
from layerscope.registry import RULES
from tests.helpers.data import MadeUpSearch, removed_blocks


def names(*arguments, **options):
    return [rule.name for rule in chosen_rules(*arguments, **options)]


def test_every_rule_is_a_file_of_its_name():
    assert list(RULES) == ["angular", "beam", "deepest", "greedy", "influence", "last", "random", "spans", "swap"]
    assert all(RULES[name].name == name and RULES[name].__doc__ for name in RULES)


def test_the_usual_rules_fit_the_depth():
    usual = ["angular", "deepest", "greedy", "influence", "last", "random", "spans"]
    assert names(None, 12) == names(None, 30, max_span=2) == usual
    assert names(None, 13) == [name for name in usual if name != "spans"]


def test_rules_are_named_in_a_list_or_with_commas():
    assert names("greedy, last", 30) == names(["greedy", "last", "greedy"], 30) == ["greedy", "last"]
    with pytest.raises(InputError, match=r"no rule 'angle'.*angular"):
        names("angle", 12)
    with pytest.raises(InputError, match="rules is empty; name some of angular"):
        names([], 12)


@pytest.mark.parametrize("name", list(RULES))
def test_what_a_rule_will_take_is_told_without_looking(name):
    search, rule = MadeUpSearch(6, [1, 3]), RULES[name]()
    stand_ins = rule.stand_ins(search)
    assert {len(blocks) for blocks in removed_blocks(stand_ins, 6)} == {1, 3}
    assert (rule.block_runs(search) > 0) == rule.looks
    assert search.asked == []
