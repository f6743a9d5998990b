"""Exchange of blocks after greedy removal."""

import itertools

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.cutting.rules.beam import Beam
from layerscope.cutting.rules.greedy import Greedy
from layerscope.cutting.rules.swap import Swap
from layerscope.cutting.search import Search
from layerscope.evaluation.evaluate import make_evaluator
from tests.helpers.data import MadeUpSearch, labelled_frame, removed_blocks
from tests.helpers.models import planted_pair, random_classifier


def cancelling(plan):
    """Blocks 2 and 3 of six undo one another; 1 does little by itself, and all others more."""
    gone = set(plan.removed(6))
    alone = {1: 0.1, 4: 0.5, 5: 0.6, 6: 0.7}
    return 1.0 - sum(alone.get(block, 0.0) for block in gone) - 0.2 * (len(gone & {2, 3}) == 1)


def drawn(seed):
    """A worth for every plan of seven blocks, drawn at random."""
    return lambda plan: np.random.default_rng([seed, *plan.removed(7)]).random()


def test_it_finds_the_pair_that_greedy_removal_has_locked_out():
    search = MadeUpSearch(6, [1, 2, 3], worth=cancelling)
    assert removed_blocks(Greedy().plans(search), 6) == [(1,), (1, 2), (1, 2, 3)]
    assert removed_blocks(Swap().plans(search), 6) == [(1,), (2, 3), (1, 2, 3)]


@pytest.mark.parametrize("seed", range(5))
def test_no_single_exchange_is_better_in_the_end(seed):
    search = MadeUpSearch(7, [2, 3, 5], worth=drawn(seed), max_evaluations=1000)
    for start, plan in zip(Greedy().plans(search), Swap().plans(search), strict=True):
        gone = plan.removed(7)
        near = [search.without([*set(gone) - {out}, block]) for out in gone for block in plan.keep]
        assert search.worth(plan) >= max(map(search.worth, [start, *near]))


@pytest.mark.parametrize("most", [5, 12, 18, 25, 40, 1000])
def test_the_budget_is_kept_apart_from_that_of_greedy(most):
    search, alone = (MadeUpSearch(7, worth=drawn(3), max_evaluations=most) for _ in "ab")
    kept, greedy = Swap().plans(search), Greedy().plans(alone)
    further = set(search.asked) - set(alone.asked)
    assert len(further) <= Swap().evaluations(search) <= most
    assert len(kept) == len(greedy)
    assert all(search.worth(a) >= search.worth(b) for a, b in zip(kept, greedy, strict=True))
    assert {len(p.keep) for p in Swap().stand_ins(search)} == {len(p.keep) for p in kept}


def test_what_it_proposes_does_not_depend_on_what_has_been_evaluated_before():
    opened, rows = random_classifier("bert"), np.arange(0, 40, 2)
    searches = [Search(make_evaluator(opened, labelled_frame()), rows, (2, 3)) for _ in "ab"]
    Beam().plans(searches[1])
    assert Swap().plans(searches[0]) == Swap().plans(searches[1])


def test_blocks_run_no_more_often_than_was_told(monkeypatch):
    """Over all steps of real searches, in which plans share their prefixes."""
    from layerscope.cutting import sweep

    run, real = [], sweep.Trial.__init__
    rows = {"swap": np.arange(9), "beam": np.arange(10)}  # so that nothing is in the store

    def counted(trial, *arguments):
        real(trial, *arguments)
        run.append(trial.block_runs)

    monkeypatch.setattr(sweep.Trial, "__init__", counted)
    opened = random_classifier("bert", num_hidden_layers=5)
    for rule in (Swap(), Beam()):
        run.clear()
        search = Search(make_evaluator(opened, labelled_frame()), rows[rule.name], (1, 2, 3))
        rule.plans(search)
        base = rule.begins_with
        told = rule.block_runs(search) + (base().block_runs(search) if base else 0)
        assert 0 < sum(run) <= told


def test_a_planted_network_in_which_two_blocks_undo_one_another():
    opened, texts = planted_pair(), labelled_frame(120)
    ids = [torch.tensor([opened.tokenizer(text)["input_ids"]]) for text in texts["text"]]
    texts["label"] = [int(opened.network(input_ids=row).logits.argmax()) for row in ids]
    found = ls.advise(opened, texts, rules="greedy,swap,beam", remove=2, confidence=0, timed=False)
    removed = {rule: found.frame[found.frame["rule"].str.contains(rule)] for rule in ("greedy", "swap", "beam")}
    assert list(removed["swap"]["blocks"]) == list(removed["beam"]["blocks"]) == ["1, 4"]
    assert float(removed["swap"]["score"].iloc[0]) == 1.0 > float(removed["greedy"]["score"].iloc[0])
    # The true optimum, over every pair.
    every = [ls.LayerPlan(keep) for keep in itertools.combinations(range(1, 5), 2)]
    evaluator = make_evaluator(opened, texts)
    worths = Search(evaluator, np.arange(len(evaluator.examples)), (2,)).worths(every, "every pair")
    assert every[int(np.argmax(worths))] == ls.LayerPlan([1, 4])
