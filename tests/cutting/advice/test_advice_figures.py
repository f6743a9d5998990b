"""The pictures of advice name the rules."""

import pytest

import layerscope as ls
from tests.helpers.data import labelled_frame
from tests.helpers.models import random_classifier


@pytest.fixture(scope="module")
def advice(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAYERSCOPE_HOME", str(tmp_path_factory.mktemp("home")))
        yield ls.advise(
            random_classifier("bert"), labelled_frame(), rules="last,angular,random", confidence=0, timed=False
        )


def test_every_point_says_which_rules_found_it(advice):
    scatter = advice.figures()[0]
    labels = {point.label for point in scatter.points}
    rows = advice.frame[advice.frame["removed"] > 0]
    assert labels == {"the whole model", *(f"blocks {r.blocks} ({r.rule})" for r in rows.itertuples())}
    assert "found by the rules last, angular and random" in scatter.shows


def test_the_rules_are_curves_over_the_blocks_that_go(advice, tmp_path):
    curve = advice.figures()[1]
    assert [series.name for series in curve.series] == ["last", "angular", "random"]
    for series in curve.series:
        own = advice.rules[advice.rules["rule"] == series.name]
        assert series.x == tuple(own["removed"])
        assert series.y == tuple(own["score"])
    assert curve.references == (("the whole model", advice.frame["score"].iloc[0]),)
    advice.plot(tmp_path / "advice.png")
    assert (tmp_path / "advice.png").stat().st_size > 1000


def test_many_that_lost_to_chance_are_named_without_their_scores(advice, monkeypatch):
    monkeypatch.setattr("layerscope.cutting.advice._SPELLED", -1)
    monkeypatch.setattr(type(advice), "rules", advice.rules.assign(lost=True))
    assert "(" not in advice.against_random.split(" Scores are of ")[0]
    assert "last at 1" in advice.against_random


def test_the_findings_say_who_lost_to_chance(advice):
    said = advice.against_random
    lost = advice.rules[advice.rules["lost"]]
    if len(lost):
        assert said.startswith("Worse in accuracy than the middle one of random plans, by blocks removed: ")
        assert all(f"{row.rule} at " in said and f"{row.removed} (" in said for row in lost.itertuples())
    else:
        assert said == "Every rule is at least as good as random blocks at every size."
    assert [str(finding) for finding in advice.findings()][:2] == [str(advice), said]


def test_the_front_is_that_of_the_scores_that_are_shown(advice):
    scatter = advice.figures()[0]
    shown = {(point.x, point.y) for point in scatter.points}
    line = {(point.x, point.y) for point in scatter.points if point.series == "front"}

    def beaten(x, y):
        return any(u <= x and v >= y and (u < x or v > y) for u, v in shown)

    assert line == {point for point in shown if not beaten(*point)}
    assert sum(point.series == "chosen" for point in scatter.points) == 1
