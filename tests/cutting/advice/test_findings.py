"""Findings of advice: what may go, and which rule is best."""

import math
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas

import layerscope as ls
from layerscope.cutting.patch import Domain, Patch
from layerscope.cutting.selection_test import Parts
from layerscope.cutting.targets import Target

ROWS = np.arange(75)


def candidates():
    rows = [
        ("1-4", 0, "", 0.80, math.nan, math.nan, 100),
        ("1-3", 1, "last", 0.60, math.nan, math.nan, 80),
        ("1, 3-4", 1, "angular, random", 0.79, -0.01, -0.02, 80),
        ("2-4", 1, "random", 0.55, math.nan, math.nan, 80),
    ]
    names = ["blocks", "removed", "rule", "score", "change", "change_low", "parameters"]
    frame = pandas.DataFrame(rows, columns=names)
    about = {"macs": frame["parameters"], "latency_1_ms": math.nan, "latency_32_ms": math.nan, "savable": True}
    return frame.assign(
        low=frame["score"] - 0.03, high=frame["score"] + 0.03, chosen_on=frame["score"], metric="accuracy", **about
    )


def advice(chosen, confidence=0.9, tolerance=0.03, rules=("last", "angular", "random"), target=None):
    frame = candidates().assign(chosen=[k == chosen for k in range(4)])
    evaluator = SimpleNamespace(
        model=SimpleNamespace(depth=4), examples=[0] * 300, majority=0.3, resampled=lambda rows: ""
    )
    keep = [1, 3, 4] if chosen == 2 else [1, 2, 3, 4]
    check = SimpleNamespace(candidate=2, change=-0.01, low=-0.02, passed=chosen == 2)
    decision = SimpleNamespace(checks=[check], needed=None) if confidence and target is None else None
    parts = Parts(ROWS, ROWS, np.arange(150))
    given = (frame, ls.LayerPlan(keep), tolerance, confidence, evaluator, {}, np.zeros(1), parts, decision, rules)
    return ls.Advice(*given, **({} if target is None else {"target": target}))


def test_advice_with_a_bound_is_sure_and_tells_it():
    kept, lost, best = advice(2).findings()
    assert str(kept) == str(advice(2))
    assert kept.text.startswith("Keep blocks 1, 3-4: accuracy 0.7900 (0.7600 to 0.8200)")
    assert "80% of the parameters" in kept.text
    assert "With 90% confidence it loses at most 0.0200 accuracy" in kept.text
    assert kept.sure is True
    assert "the plan of the rule angular (accuracy 0.790) does better than the middle one of random plans" in best.text
    assert best.sure is True  # random plans have 0.67 in the middle
    assert best.evidence == (
        "95% interval 0.760 to 0.820 on the 150 rows that did not choose, and 0.640 to 0.700 of the random one; the "
        "best of 2 rules"
    )
    assert "last at 1 (0.6, random 0.67)" in lost.text
    free = advice(2, confidence=0).findings()[0]
    assert free.sure is False
    assert "without a bound" in free.text


def test_advice_of_a_size_is_not_called_enough():
    told = advice(2, target=Target(blocks=3)).findings()[0]
    assert "has the best score on the rows that choose among those of 3 plans that" in told.text
    assert "enough" not in told.text


def test_advice_that_keeps_all_says_what_stood_in_the_way():
    told = advice(0, tolerance=0.01, rules=()).findings()
    assert len(told) == 1
    assert told[0].text.startswith("No block is shown to be dispensable with 90% confidence.")
    assert "blocks 1, 3-4, lowers accuracy by 0.0100" in told[0].text
    assert "and perhaps lowers it by 0.0200: more than the tolerance of 0.01" in told[0].text
    assert told[0].sure is False


def patched(regained, within=False):
    """Advice on a size, whose patch regained so much, or was not folded in."""
    applied = SimpleNamespace(applied=True, sentences=lambda: ["Solved anew."])
    domain = Domain("texts", "divergence", 60, "texts", 0.0, 0.1, 0.2)
    dropped = Patch(ls.LayerPlan([1, 3, 4]), (), (), (domain,), ("It does not help on held-out texts",), {})
    given = advice(2, target=Target(blocks=3))
    return replace(given, within=within, patch=applied if regained else dropped, regained=regained)


def test_the_verdict_says_what_a_patch_regains_in_the_metric():
    verdict = patched((0.03, 0.01, 0.05)).verdict
    assert verdict.says.endswith(
        "The patch regains 0.0300 accuracy over the plain cut on the same rows (95% interval +0.0100 to +0.0500)."
    )
    assert (verdict.regains, verdict.regains_low, verdict.regains_high) == (0.03, 0.01, 0.05)
    assert "once it is patched" in verdict.says
    unsure = patched((0.03, -0.01, 0.05)).verdict
    assert unsure.says.endswith("(95% interval -0.0100 to +0.0500, so it may be none).")
    assert "too few rows for an interval" in patched((0.03, -math.inf, math.inf)).verdict.says


def test_a_patch_that_is_worse_than_the_plain_cut_is_said_to_be():
    verdict = patched((-0.02, -0.05, -0.01)).verdict
    assert "The patch makes it worse: with it the model scores 0.0200 accuracy worse than the plain cut" in verdict.says
    assert verdict.says.endswith("Without patch= (--patch) plans are judged as plain cuts.")
    assert "may be chance" not in verdict.says
    assert "so it may be chance" in patched((-0.02, -0.05, 0.01)).verdict.says
    told = patched((-0.02, -0.05, -0.01), within=None).findings()  # no tolerance, so the verdict is no finding
    assert [finding.sure for finding in told if "makes it worse" in finding.text] == [True]


def test_a_patch_that_is_not_folded_in_regains_nothing():
    verdict = patched(None).verdict
    assert verdict.says.endswith("No patch is folded in: It does not help on held-out texts.")
    assert "once it is patched" not in verdict.says
    assert math.isnan(verdict.regains)


def test_a_change_of_perplexity_is_told_in_perplexity():
    """The tests are of nats, and what gets worse is raised."""
    base = advice(0, tolerance="1%", rules=())
    frame = base.frame.assign(metric="perplexity", score=[539.0, 600.0, 700.0, 900.0])
    frame.loc[2, ["change", "change_low"]] = -238.4, -311.0
    told = replace(base, candidates=frame).findings()[0].text
    assert "blocks 1, 3-4, raises perplexity by 238 on the 75 rows that confirm, and perhaps raises it by 311" in told
    chosen = advice(2, target=Target(blocks=3), tolerance="1%")
    frame = chosen.frame.assign(metric="perplexity", score=[539.0, 600.0, 700.0, 900.0], change_low=-311.0)
    says = replace(chosen, candidates=frame, within=False, evaluator=base.evaluator).verdict.says
    assert "raises perplexity by 161 on" in says


def test_advice_goes_on_to_healing_what_it_leaves_out():
    step = advice(2).next_step()
    assert (step.command, step.arguments) == ("heal", ("--without", "2", "-o", "healed"))
    assert step.why == "Train the cut model a little, and save it"
    assert advice(0).next_step().arguments[:2] == ("--heal", "300")


def test_a_rule_is_not_shown_to_be_better_where_its_interval_meets_that_of_random_plans():
    near = advice(2)
    near.frame["low"], near.frame["high"] = near.frame["score"] - 0.07, near.frame["score"] + 0.07
    best = near.findings()[-1]
    assert "0.720 to 0.860 on" in best.evidence  # which does not hold 0.67, the random plans' score
    assert best.sure is False


def test_a_rule_that_found_the_choice_and_is_best_nowhere_is_explained():
    lucky = advice(2)
    lucky.candidates.loc[1, "score"] = 0.95  # the rule `last` is ahead on the rows that did not choose
    lucky.candidates.loc[2, "rule"] = "random"
    said = str(lucky.findings()[1])
    assert said == (
        "The chosen plan was found by random and picked on the rows that choose. Rules are compared on the 150 other "
        "rows, and random stands for the middle one of its plans, so a rule can have found the choice and be the best "
        "at no size."
    )
    assert not any("best at no size" in str(finding) for finding in advice(2).findings())
