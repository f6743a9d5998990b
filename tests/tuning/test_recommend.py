"""The choice of a strategy: its reason, its command, its pictures."""

from dataclasses import replace

import numpy as np
import pytest

import layerscope as ls
from layerscope.errors import InputError
from layerscope.results import Curve, Result
from layerscope.tuning import recommend
from layerscope.tuning.recommend import Choice, _decide, _strategy
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
    assert list(choice.frame) == [*told, *(["probe", "probe_low", "probe_high"] if probes else [])]
    assert len(choice.nu.permuted) == 100
    assert choice.p == choice.nu.p_best
    assert str(ls.Strategy.parse(choice.strategy).resolve(4)) == choice.strategy  # in numbers
    assert choice.strategy in choice.reason
    assert choice.strategy in set(choice.strategies.frame["resolved"])
    kinds = [figure.kind for figure in choice.figures()]
    assert kinds == ["curve", "bars", *(["curve"] if probes else []), "table"]
    assert str(choice) == f"{choice.reason}\nNext: {choice.command}"
    assert str(choice.findings()[0]) == choice.reason
    assert choice.next_step().line == choice.command
    assert any("Probes read the labels best from layer" in str(f) for f in choice.findings()) == probes
    assert choice.provenance["data"]["n"] == 100
    assert choice.save(tmp_path / "choice.parquet").is_file()


def test_numbers_have_no_classes():
    frame = three_class_frame(20, 0)
    with pytest.raises(InputError, match="has numbers as labels"):
        ls.recommend(random_model(), frame.assign(label=frame["label"] + 0.5))


def test_a_curve_that_is_not_to_be_trusted_says_so():
    def nu(values, wins, p=0.01):
        best = 1 + int(np.argmin(values[1:]))
        layers, null = list(range(len(values))), np.full(len(values), 8.0)
        told = {"best": best, "wins": np.asarray(wins), "null": null, "p_best": p}
        return Curve("nu", ["m"] * len(values), layers, np.asarray(values, float), **told)

    chance = nu([5, 1.0, 1.1, 1.2, 1.1, 1.0, 1.1], [0, 1.0, 0, 0, 0, 0, 0], p=0.2)
    assert _decide(chance, None, 1.0, 6) == (
        4,  # the middle layer
        "l* is layer 1, which has the least nu (1, where permuted labels give 8), but no layer shows the labels (p = "
        "0.2 after allowing for the choice among layers), so the middle layer, 4, is recommended.",
    )
    score = Curve("accuracy", ["m"] * 7, list(range(7)), np.arange(7.0), best=6, low=np.arange(7.0) - 1.5)
    layer, why = _decide(chance, score, 1.0, 6)
    assert layer == 6
    assert why.endswith("the probes' best layer, 6, is recommended (layer 5 ties with it within its interval).")
    level = Curve("accuracy", ["m"] * 7, list(range(7)), np.ones(7), best=1, low=np.zeros(7))
    assert _decide(chance, level, 1.0, 6)[0] == 4
    assert "the probes of all layers tie, so the middle layer, 4, is" in _decide(chance, level, 1.0, 6)[1]
    clear = nu([5, 4, 3, 1, 2, 3, 4], [0, 0, 0.1, 0.8, 0.1, 0, 0])
    layer, why = _decide(clear, score, 1.0, 6)
    assert layer == 3
    assert "p = 0.01 after allowing for the choice among layers" in why
    assert "6 layers are too few for an interval" in why
    assert "It is least in 80% of halves of the texts, layer 2 in 10% and layer 4 in 10%: these tie with it." in why
    assert "It is least in 100% of halves of the texts." in _decide(nu([5, 1, 2], [0, 1, 0]), None, 1.0, 2)[1]
    rough = _decide(clear, None, 100.0, 6)[1]
    assert "too rough" in rough
    assert "zeta 100.0: the sum of squared second differences" in rough


def test_a_best_layer_that_shows_nothing_beside_layers_that_do():
    generator = np.random.default_rng(0)
    labels = np.arange(300) % 2
    wide = generator.normal(size=(300, 40))
    shows = wide + labels[:, None] * np.eye(40)[0]
    reps = ls.Representations.from_arrays([wide, wide, shows], labels)
    nu = replace(ls.specialty(reps, null=40), wins=np.asarray([0, 0, 1.0]))
    assert "which has the least nu" in _decide(nu, None, 0.0, 2)[1]
    nu = replace(nu, best=1, p_best=0.6)
    assert "but it does not show the labels, while layer 2 does (p = 0.6 after" in _decide(nu, None, 0.0, 2)[1]


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
    assert [name for name, _ in again.figures()[0].marks] == [f"l* = {again.best}", f"recommended: {other}"]


def test_shuffled_labels_are_not_trusted(words):
    """The rows with labels at random: a layer always has the least nu, and it is trusted as seldom as p says."""
    train = ls.extract(random_model(), words, split="train", pool="mean")
    trusted = 0
    for seed in range(20):
        reps = train.with_labels(np.random.default_rng(seed).permutation(train.labels))
        nu = replace(ls.specialty(reps, null=40, seed=seed), wins=np.ones(5))
        trusted += "shows the labels" not in _decide(nu, None, 0.0, 4)[1]
    assert trusted <= 3


def test_the_papers_own_probe(words):
    choice = ls.recommend(random_model(), words, probe="head", null=20)
    assert choice.provenance["settings"]["kind"] == "head"
    assert choice.probe.low is not None
    with pytest.raises(InputError, match="no kind of probe 'tree'"):
        ls.recommend(random_model(), words, probe="tree")


def test_probes_that_tie_are_not_sure():
    nu = Curve("nu", ["m"] * 3, [0, 1, 2], np.array([3.0, 1.0, 1.1]), best=1, p_best=0.01)
    bounds = {"low": np.array([0.4, 0.6, 0.6]), "high": np.array([0.6, 0.8, 0.8])}
    probe = Curve("accuracy", ["m"] * 3, [0, 1, 2], np.array([0.5, 0.7, 0.69]), best=1, **bounds)
    choice = Choice(nu, probe, 0.0, None, 1, "(2, 2, 2)", "Because.", "layerscope tune m", {"data": {"n": 100}})
    reason, probes, least = choice.findings()
    assert (str(reason), reason.sure) == ("Because.", True)
    assert "layer 2 may do as well" in probes.text
    assert probes.sure is False
    assert probes.evidence == "95% interval 0.600 to 0.800"
    assert str(least) == "nu of layer 1 is 1.000 (no interval was measured, n = 100)."
