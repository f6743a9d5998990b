"""The choice of a strategy: its reason, its command, its pictures."""

from dataclasses import replace

import numpy as np
import pytest

import layerscope as ls
from layerscope.errors import InputError
from layerscope.probing.layer_score import LayerScoreCurve
from layerscope.results import Curve, Result
from layerscope.tuning import recommend
from layerscope.tuning.recommend import Choice, _beside_probes, _decide, _of_ties, _strategy
from tests.helpers.data import three_class_frame
from tests.helpers.models import random_model


@pytest.fixture(scope="module")
def words():
    return ls.task({"train": three_class_frame(100, 0), "validation": three_class_frame(50, 1)})


@pytest.mark.parametrize("probes", [True, False])
def test_a_choice_has_its_reason_and_its_command(probes, words, tmp_path):
    choice = ls.recommend(random_model(), words, probes=probes)
    assert isinstance(choice, Result)
    assert choice.best == ls.specialty(random_model(), words).best
    assert (choice.probe is not None) == probes
    assert "layer" in choice.reason
    assert choice.strategy in choice.command
    assert ls.Strategy.parse(choice.strategy).resolve(4)
    assert {"full", "head-only"} <= set(choice.strategies.frame["strategy"])
    choice.plot(tmp_path / "nu.png")
    assert (tmp_path / "nu.png").stat().st_size > 1000
    told = ["layer", "nu", "low", "high", "wins", "null", "ratio", "p"]
    told += ["press", "press_low", "press_high", "press_null", "press_p"]
    assert list(choice.frame) == [*told, *(["probe", "probe_low", "probe_high"] if probes else [])]
    assert len(choice.nu.permuted) == 100
    assert choice.p == choice.press.p_best
    assert str(ls.Strategy.parse(choice.strategy).resolve(4)) == choice.strategy  # in numbers
    assert choice.strategy in choice.reason
    assert choice.strategy in set(choice.strategies.frame["resolved"])
    kinds = [figure.kind for figure in choice.figures()]
    assert kinds == ["curve", "bars", "curve", *(["curve"] if probes else []), "table"]
    assert str(choice) == f"{choice.reason}\nNext: {choice.command}"
    assert str(choice.findings()[0]) == choice.reason
    assert choice.next_step().line == choice.command
    assert any("Probes read the labels best from layer" in str(f) for f in choice.findings()) == probes
    assert choice.provenance["data"]["n"] == 100
    assert choice.save(tmp_path / "choice.parquet").is_file()


def test_numbers_have_press_and_no_nu(tmp_path):
    frame = three_class_frame(80, 0)
    numbers = frame.assign(label=frame["label"] + 0.5)
    choice = ls.recommend(random_model(), numbers, probes=False)
    assert choice.nu is None
    assert choice.best is None
    assert np.isnan(choice.zeta)
    assert list(choice.frame) == ["layer", "press", "press_low", "press_high", "press_null", "press_p"]
    assert choice.press.shown is True
    assert "l*" not in choice.reason
    assert choice.strategy in set(choice.strategies.frame["resolved"])
    choice.plot(tmp_path / "press.png")
    assert [figure.kind for figure in choice.figures()] == ["curve", "bars", "table"]
    with pytest.raises(InputError, match="has numbers as labels; imbalance, scarcity, pools and tuned look at nu"):
        ls.recommend(random_model(), numbers, pools=["cls"])


def curve(values, spread, p=0.01, name="press"):
    values = np.asarray(values, float)
    draws = values + spread * np.random.default_rng(0).normal(size=(40, len(values)))
    best = 1 + int(np.argmax(values[1:]))
    made = LayerScoreCurve if name == "press" else Curve
    return made(name, ["m"] * len(values), list(range(len(values))), values, best=best, p_best=p, draws=draws)


def test_the_reason_says_what_decides():
    nu = replace(curve([5, 4, 3, 1, 2, 3, 4], 0.1, name="nu"), best=3)
    clear = curve([0, 0.1, 0.2, 0.25, 0.5, 0.3, 0.2], 0.001)
    assert _decide(clear, nu, None, 6) == (
        4,
        "Layer 4 tells the labels best: PRESS is 0.500 (p = 0.01 after allowing for the choice among layers). It is "
        "greater than in every other layer. l*, the layer of the least nu, is 3.",
    )
    scored = {"values": np.arange(7.0), "best": 6}
    scored["left_out"] = np.arange(7.0) + 1.5 / 19 * np.random.default_rng(0).normal(size=(20, 7))
    score = Curve("accuracy", ["m"] * 7, list(range(7)), **scored)
    layer, why = _decide(clear, None, score, 6)
    assert layer == 4
    assert "l*" not in why
    assert "The probes score best at layer 6" in why
    assert "their correlation with PRESS over layers is" in why
    assert "6 layers are too few for an interval" in why
    chance = curve([0, 0.001, 0.002, 0.003, 0.002, 0, 0], 0.01, p=0.2)
    assert _decide(chance, nu, None, 6) == (
        4,  # the middle layer
        "No layer is shown to tell the labels: PRESS is 0.003 at best (p = 0.2 after allowing for the choice among "
        "layers), so the middle layer, 4, is recommended. l*, the layer of the least nu, is 3.",
    )
    layer, why = _decide(chance, nu, score, 6)
    assert layer == 6
    assert "the probes' best layer, 6, is recommended (layer 5 ties with it)." in why
    noise = np.random.default_rng(0).normal(size=(20, 7))
    level = Curve("accuracy", ["m"] * 7, list(range(7)), np.ones(7), best=1, left_out=1 + noise)
    layer, why = _decide(chance, nu, level, 6)
    assert layer == 4
    assert "the probes of all layers tie, so the middle layer, 4, is" in why
    empty = LayerScoreCurve("press", ["m"], [0], np.asarray([np.nan]))
    assert _decide(empty, None, None, 6)[1].startswith("PRESS has no value in any layer, so the middle layer, 4,")


def test_layers_that_tie_are_listed_with_two_strategies():
    tied = curve([0, 0.1, 0.2, 0.49, 0.5, 0.3, 0.48], 0.05)
    layer, why = _decide(tied, None, None, 6)
    assert layer == 4
    assert "These layers cannot be told apart with these rows: 3, 4 and 6." in why
    assert _of_ties(tied, 4, 6) == {3: "(4, 6, 6)", 6: "(4, 6, 6)"}
    assert _of_ties(tied, 3, 6) == {}  # the middle layer, recommended on other grounds
    assert _of_ties(curve([0, 0.1, 0.5], 0.001), 2, 2) == {}


def test_where_all_layers_tie_none_is_called_the_best():
    _, why = _decide(curve([0, 0.46, 0.47, 0.49, 0.5, 0.48, 0.48], 0.05), None, None, 6, "mine")
    assert why.startswith(
        "No layer of mine is shown to be better than another: PRESS is 0.500 at most, in layer 4 (p ="
    )
    assert "tells the labels best" not in why


def test_a_tie_of_a_model_is_in_the_table_of_strategies(words):
    choice = ls.recommend(random_model(), words, probes=False)
    assert choice.layer in choice.ties
    if len(choice.ties) > 1:
        assert set(choice.of_ties) == {min(choice.ties), max(choice.ties)}
        assert all(f"{layer}, has {text}" in choice.reason for layer, text in choice.of_ties.items())
    assert set(choice.of_ties.values()) <= set(choice.strategies.frame["resolved"])


def test_few_rows_are_said_to_tell_little(words, caplog):
    ls.recommend(random_model(), words, probes=False, null=20)
    assert "There are 100 rows; with fewer than 200 most layers cannot be told apart." in caplog.messages


def test_the_strategy_of_a_layer_is_in_numbers():
    assert _strategy(8, 12)[0] == "(9, 12, 12)"
    assert _strategy(12, 12)[0] == "(10, 12, 12)"
    assert _strategy(1, 1) == (
        "(1, 1, 1)",
        "The recommended strategy is (1, 1, 1): layer 1 is the top one, so tune block 1 alone.",
    )


def test_what_is_recommended_on_other_grounds_is_not_called_l(monkeypatch, words):
    """The probes' layer is the recommended one; l* and the strategies around it are still those of nu."""
    choice = ls.recommend(random_model(), words)
    other = next(layer for layer in (1, 2, 3, 4) if layer != choice.best)
    monkeypatch.setattr(recommend, "_decide", lambda *_: (other, "On other grounds."))
    again = ls.recommend(random_model(), words)
    assert (again.best, again.layer) == (choice.best, other)
    around = again.strategies.frame.set_index("strategy")["resolved"]
    assert around["(1, l*, l*)"] == f"(1, {again.best}, {again.best})"
    assert again.strategy == _strategy(other, 4)[0]
    assert [figure.marks[0][0] for figure in again.figures()[:3:2]] == [f"recommended: {other}", f"l* = {again.best}"]


def test_shuffled_labels_show_in_no_layer(words):
    """The rows with labels at random: a layer is recommended for its PRESS as seldom as p says."""
    train = ls.extract(random_model(), words, split="train", pool="mean")
    shown = 0
    for seed in range(20):
        reps = train.with_labels(np.random.default_rng(seed).permutation(train.labels))
        press = ls.layer_scores(reps, ["press"], null=40, ci=None, seed=seed)["press"]
        shown += "No layer is shown to tell the labels" not in _decide(press, None, None, 4)[1]
    assert shown <= 3


def test_the_papers_own_probe(words):
    choice = ls.recommend(random_model(), words, probe="head", null=20)
    assert choice.provenance["settings"]["kind"] == "head"
    assert choice.probe.low is not None
    with pytest.raises(InputError, match="no kind of probe 'tree'"):
        ls.recommend(random_model(), words, probe="tree")


def test_probes_that_tie_are_not_sure():
    noise = np.random.default_rng(0).normal(size=(20, 3))
    press = curve([0.0, 0.5, 0.3], 0.001)
    nu = Curve("nu", ["m"] * 3, [0, 1, 2], np.array([3.0, 1.0, 1.1]), best=1)
    bounds = {"low": np.array([0.4, 0.6, 0.6]), "high": np.array([0.6, 0.8, 0.8]), "left_out": 0.6 + 0.01 * noise}
    probe = Curve("accuracy", ["m"] * 3, [0, 1, 2], np.array([0.5, 0.7, 0.69]), best=1, **bounds)
    origin = {"data": {"n": 100}}
    choice = Choice(press, nu, probe, 0.0, None, 1, "(2, 2, 2)", "Because.", "layerscope tune m", origin)
    reason, probes, value, least = choice.findings()
    assert (str(reason), reason.sure) == ("Because.", True)
    assert "layer 2 may do as well" in probes.text
    assert probes.sure is False
    assert probes.evidence == "95% interval 0.600 to 0.800"
    assert value.text == "press of layer 1 is 0.500."
    assert str(least) == "nu of layer 1 is 1.000 (no interval was measured, n = 100)."
    unsure = Choice(curve([0.0, 0.5, 0.49], 0.2), nu, probe, 0.0, None, 1, "(2, 2, 2)", "Because.", "", origin)
    assert unsure.findings()[0].sure is False


@pytest.mark.parametrize("related", [True, False])
def test_the_interval_of_a_correlation_is_explained(related):
    steps = np.random.default_rng(5).normal(size=(2, 24))
    nu, scores = np.cumsum(steps, axis=1) if not related else (np.cumsum(steps[0]), -np.cumsum(steps[0]))
    curves = [Curve(name, ["m"] * 24, list(range(24)), values) for name, values in (("nu", nu), ("accuracy", scores))]
    curves[1] = replace(curves[1], best=3)
    low, high = ls.agreement(*curves)["intervals"]["pearson"]
    said = _beside_probes(*curves)
    assert f"judged by their steps from layer to layer the correlation lies between {low:.2f} and {high:.2f}" in said
    assert said.endswith("so they do go together." if related else "so they may have nothing to do with one another.")
