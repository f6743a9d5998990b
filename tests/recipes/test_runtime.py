"""Estimates: more work takes longer, and a time is said in words."""

import pytest

from layerscope.recipes import runtime
from layerscope.recipes.recipe import papers, read_recipe
from layerscope.recipes.reproduce import cells_of, changed
from layerscope.recipes.runtime import macs_per_token, seconds_of, speed


@pytest.fixture(autouse=True)
def rows(monkeypatch):
    monkeypatch.setattr(runtime, "_rows", lambda task, split: 5000)


def seconds(paper, only, profile="smoke", **changes):
    recipe = read_recipe(paper)
    asked = changed(recipe.profile(profile), **{"models": None, "tasks": None, "seeds": None, **changes})
    return seconds_of(cells_of(recipe, recipe.chosen(only), asked))


@pytest.mark.parametrize("paper", papers())
def test_every_experiment_has_an_estimate_and_more_work_takes_longer(paper):
    small = {"models": "garden:bert-s0", "tasks": "pydocs"}
    for name in read_recipe(paper).experiments:
        assert 0 < seconds(paper, name, **small) < 5000
    assert seconds(paper, None, "offline", **small) > 2 * seconds(paper, None, **small)


def test_seeds_and_models_count():
    one = seconds("phang2021", "fig4", seeds=1)
    assert seconds("phang2021", "fig4", seeds=3) == pytest.approx(3 * one)


def test_a_training_that_experiments_share_counts_once():
    own = {"models": "garden:bert-s0", "tasks": "pydocs", "profile": "offline", "seeds": 1}
    apart = [seconds("phang2021", name, **own) for name in ("fig3", "fig4")]
    training = sum(apart) - seconds("phang2021", "fig3,fig4", **own)
    assert 0 < training < min(apart)


def test_multiply_adds_and_speed():
    assert 1e5 < macs_per_token("garden:bert-s0") < 1e8
    assert macs_per_token("random:garden:bert-s0") == macs_per_token("garden:bert-s0")
    assert macs_per_token("/no/such/folder") == 85e6
    assert speed() > 1e8
