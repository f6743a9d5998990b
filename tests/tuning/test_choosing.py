"""The choice of a strategy: its reason, its command, its pictures."""

import numpy as np
import pytest
from quick import model, rows

import layerscope as ls
from layerscope.errors import InputError
from layerscope.results import Curve, Result
from layerscope.tuning.choosing import _decide


@pytest.fixture(scope="module")
def words():
    return ls.task({"train": rows(100, 0), "validation": rows(50, 1)})


@pytest.mark.parametrize("probes", [True, False])
def test_a_choice_has_its_reason_and_its_command(probes, words, tmp_path):
    choice = ls.choose(model(), words, probes=probes)
    assert isinstance(choice, Result)
    assert choice.best == ls.specialty(model(), words).best
    assert (choice.probe is not None) == probes
    assert "layer" in choice.reason
    assert choice.strategy in choice.command
    assert ls.Strategy.parse(choice.strategy).resolve(4)
    assert {"full", "head-only"} <= set(choice.strategies.frame["strategy"])
    choice.plot(tmp_path / "nu.png")
    assert (tmp_path / "nu.png").stat().st_size > 1000
    assert list(choice.frame) == ["layer", "nu", "low", "high", "wins", *(["probe"] if probes else [])]
    kinds = [figure.kind for figure in choice.figures()]
    assert kinds == ["curve", "bars", *(["curve"] if probes else []), "table"]
    assert choice.findings() == [choice.reason, f"Next: {choice.command}"]
    assert choice.provenance["data"]["n"] == 100
    assert choice.save(tmp_path / "choice.parquet").is_file()


def test_numbers_have_no_classes():
    frame = rows(20, 0)
    with pytest.raises(InputError, match="has numbers as labels"):
        ls.choose(model(), frame.assign(label=frame["label"] + 0.5))


def test_a_curve_that_is_not_to_be_trusted_says_so():
    def nu(values, wins):
        best = 1 + int(np.argmin(values[1:]))
        layers = list(range(len(values)))
        return Curve("nu", ["m"] * len(values), layers, np.asarray(values, float), best=best, wins=np.asarray(wins))

    flat = nu([5, 1.0, 1.1, 1.2, 1.1, 1.0, 1.1], [0, 0.2, 0.1, 0.2, 0.1, 0.2, 0.2])
    assert "too flat" in _decide(flat, None, 1.0, 6)[1]
    assert _decide(flat, None, 1.0, 6)[0] == 3
    score = Curve("accuracy", ["m"] * 7, list(range(7)), np.arange(7.0), best=6)
    assert _decide(flat, score, 1.0, 6) == (
        6,
        "nu is too flat (layers near l* win 30% of subsamples) to be trusted, so the probes' best layer 6 is taken.",
    )
    clear = nu([5, 4, 3, 1, 2, 3, 4], [0, 0, 0.1, 0.8, 0.1, 0, 0])
    assert _decide(clear, score, 1.0, 6)[0] == 3
    assert "too rough" in _decide(clear, None, 100.0, 6)[1]
