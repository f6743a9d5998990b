"""Findings of injections."""

import pandas

from layerscope.alignment.injection_study import InjectionStudy


def study(rows, half=0.05):
    frame = pandas.DataFrame(rows).assign(target_score=0.8, target_low=0.7, target_high=0.9, metric="accuracy", n=200)
    frame = frame.assign(low=frame["score"] - 0.05, high=frame["score"] + 0.05, lost=0.8 - frame["score"])
    frame = frame.assign(lost_low=frame["lost"] - half, lost_high=frame["lost"] + half)
    return InjectionStudy(frame, {"models": [{"name": "a"}, {"name": "b"}]})


def test_injection_says_whether_a_loss_is_shown():
    rows = [
        {"layer": 6, "method": "identity", "score": 0.3},
        {"layer": 6, "method": "linear", "score": 0.78},
        {"layer": 2, "method": "linear", "score": 0.4},
        {"layer": 6, "method": "random label", "score": 0.9},
    ]
    high, low = study(rows).findings()
    assert "linear 0.780 (0.730 to 0.830)" in high.text
    assert high.evidence == "linear, the best of 2 methods: no loss is shown, n = 200"
    assert high.sure is False
    assert low.text.startswith("With layer 2 replaced")
    assert "mapped by linear, accuracy is 0.400" in low.text
    assert low.text.endswith("Something is lost.")
    assert low.sure is True
    high, _ = study(rows, half=0.01).findings()  # text for text: the intervals of the two scores meet
    assert high.evidence == "linear, the best of 2 methods: something is lost, n = 200"
    assert high.sure is True


def test_floors_alone_decide_nothing():
    (told,) = study([{"layer": 6, "method": "random label", "score": 0.9}]).findings()
    assert told.sure is None


def test_the_two_models_are_compared_next():
    step = study([{"layer": 6, "method": "linear", "score": 0.78}]).next_step()
    assert (step.command, step.models) == ("compare", ("a", "b"))
