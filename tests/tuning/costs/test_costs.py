"""What a strategy costs, before it is trained."""

import pytest

import layerscope as ls
from layerscope.errors import InputError
from layerscope.registry import METHODS
from layerscope.tuning.costs import Strategies
from tests.helpers.models import QUICK, random_model


def test_strategies_are_listed_with_their_cost(task):
    base = random_model()
    table = ls.strategies(base, task, specialty_layer=3)
    frame = table.frame.set_index("strategy")
    assert frame.loc["full", "trainable"] == frame.loc["full", "parameters"]
    assert frame.loc["(l*, l*, l*)", "resolved"] == "(3, 3, 3)"
    assert frame.loc["(l*, l*, l*)", "parameters"] < frame.loc["full", "parameters"]
    assert frame.loc["head-only", "trainable"] == ls.tune(base, task, strategy="head-only", **QUICK).trainable
    assert frame.loc["(l*+1, L, L)", "cached"] < frame.loc["full", "cached"]
    assert frame.loc["full", "backward"] == 2 * frame.loc["full", "forward"]
    assert table.figures()[0].kind == "table"
    assert table.provenance["settings"]["best"] == 3
    with pytest.raises(InputError, match="strategies here; take a row"):
        table.row  # noqa: B018


@pytest.mark.parametrize("strategy", ["full", "(1, 3, 3)"])
@pytest.mark.parametrize("method", METHODS)
def test_the_cost_told_before_is_that_of_the_training(method, strategy, task):
    size = 4 if METHODS[method].size_is else None
    cost = ls.training_cost(random_model(), task, strategy, method, size=size).row
    training = ls.tune(random_model(), task, strategy=strategy, method=method, size=size, max_steps=1, batch=8)
    assert (cost["trainable"], cost["parameters"]) == (training.trainable, training.parameters)


def test_what_wu_freezes_is_counted(task):
    """Wu et al. 2020, appendix D: the named blocks and no more; below frozen blocks nothing needs a gradient."""
    base = random_model()
    network = base.network
    blocks = [sum(p.numel() for p in block.parameters()) for block in network.encoder.layer]
    everything = ls.training_cost(base, task, "full").row
    top, bottom = (ls.training_cost(base, task, f"freeze-{side}-3").row for side in ("top", "bottom"))
    assert everything["trainable"] - top["trainable"] == sum(blocks[1:])
    embeddings = sum(p.numel() for p in network.embeddings.parameters())
    assert everything["trainable"] - bottom["trainable"] == sum(blocks[:3]) + embeddings
    assert top["backward"] == everything["backward"]
    assert bottom["backward"] < everything["backward"] / 2
    xie = ls.training_cost(base, task, "(1, L-3, L)").row
    assert top["trainable"] - xie["trainable"] == embeddings


def test_mistakes_are_sentences(task):
    with pytest.raises(InputError, match=r"l\* is 9; this model has layers 1..4"):
        ls.strategies(random_model(), task, specialty_layer=9)
    with pytest.raises(InputError, match="no method 'magic'"):
        ls.strategies(random_model(), task, specialty_layer=2, method="magic")
    with pytest.raises(InputError, match=r"l\* is 9"):
        ls.training_cost(random_model(), task, "full", specialty_layer=9)


def test_the_cheapest_and_the_dearest_strategy_are_named():
    rows = [{"strategy": "full", "trainable": 100}, {"strategy": "head-only", "trainable": 5}]
    table = Strategies(rows, {})
    assert "head-only trains the fewest parameters (5)" in table.findings()[0].text
    assert table.next_step().arguments[0] == "--study"
    assert Strategies(rows[:1], {}).findings() == []
