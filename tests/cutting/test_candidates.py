"""Plans of several rules, and how the rules compare."""

import math

import numpy as np
import pandas

from layerscope.cutting.candidates import best_of_each_size, by_rule, front, in_short, proposed
from layerscope.cutting.search import chosen_rules
from tests.helpers.data import MadeUpSearch, removed_blocks


def test_a_plan_of_several_rules_names_them_all():
    found = proposed(MadeUpSearch(4, [1, 2]), chosen_rules("last,deepest,spans", 4))
    plans = list(found)
    assert removed_blocks(plans, 4)[0] == ()
    assert found[plans[0]] == ()
    named = dict(zip(removed_blocks(plans, 4), found.values(), strict=True))
    assert named[(3, 4)] == ("last", "spans")
    assert named[(2, 3)] == ("deepest", "spans")
    assert named[(1, 2)] == ("spans",)
    assert len(set(plans)) == len(plans)


def table(metric, **columns):
    return pandas.DataFrame({"plan": "", "blocks": [f"b{k}" for k in range(len(columns["rule"]))], **columns}).assign(
        metric=metric
    )


def test_each_rule_is_set_beside_the_middle_random_plan():
    frame = table(
        "perplexity",
        rule=["", "angular, spans", "spans", "random", "random", "random, last", "last"],
        removed=[0, 1, 1, 1, 1, 1, 2],
        chosen_on=[20.0, 30.0, 25.0, 40.0, 50.0, 60.0, 90.0],
        score=[20.0, 45.0, 26.0, 41.0, 39.0, 70.0, 80.0],
    )
    found = by_rule(frame, ["angular", "last", "random", "spans"]).set_index(["rule", "removed"])
    assert found.loc[("angular", 1), "score"] == 45
    assert found.loc[("angular", 1), "lost"]
    assert found.loc[("spans", 1), "blocks"] == "b2"  # the best on the rows that choose
    assert not found.loc[("spans", 1), "lost"]
    assert found.loc[("random", 1), ["score", "random", "blocks", "plans"]].tolist() == [41.0, 41.0, "b3", 3]
    assert not found.loc[("random", 1), "lost"]
    assert found.loc[("last", 1), "lost"]
    assert math.isnan(found.loc[("last", 2), "random"])
    assert not found.loc[("last", 2), "lost"]


def test_the_rules_in_short_and_the_best_of_each_size():
    frame = table(
        "perplexity",
        rule=["", "angular, spans", "spans", "random", "random", "random, last", "last"],
        removed=[0, 1, 1, 1, 1, 1, 2],
        chosen_on=[20.0, 30.0, 25.0, 40.0, 50.0, 60.0, np.nan],
        score=[20.0, 45.0, 26.0, 41.0, 39.0, 70.0, np.nan],
    )
    short = in_short(by_rule(frame, ["angular", "last", "random", "spans"]), "perplexity").set_index("rule")
    assert short["plans"].to_dict() == {"angular": 1, "last": 2, "random": 3, "spans": 2}
    assert short["sizes"].to_dict() == {"angular": 1, "last": 2, "random": 1, "spans": 1}
    assert short["best_at"].to_dict() == {"angular": 0, "last": 0, "random": 0, "spans": 1}
    assert short["worse_than_random_at"].to_dict() == {"angular": 1, "last": 1, "random": None, "spans": 0}
    assert best_of_each_size(frame).tolist() == [True, False, True, False, False, False, True]


def test_higher_is_better_where_it_is():
    frame = table(
        "accuracy",
        rule=["", "last", "random", "deepest"],
        removed=[0, 1, 1, 1],
        chosen_on=[0.9, 0.8, 0.7, np.nan],
        score=[0.9, 0.6, 0.7, np.nan],
    )
    found = by_rule(frame, ["last", "random", "deepest"]).set_index("rule")
    assert found["lost"].tolist() == [True, False, True]  # what is undefined is worse than anything


def test_the_front_is_of_the_score_that_is_asked_for():
    frame = pandas.DataFrame(
        {"macs": [4, 3, 2, 1], "chosen_on": [0.9, 0.95, 0.5, 0.4], "score": [0.9, 0.8, 0.85, 0.4], "metric": "accuracy"}
    )
    assert front(frame).tolist() == [False, True, True, True]
    assert front(frame, "score").tolist() == [True, False, True, True]
    worse = frame.assign(metric="perplexity")
    assert front(worse).tolist() == [False, False, False, True]
