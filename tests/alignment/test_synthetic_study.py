"""Maps that are known to be there: which methods find them."""

import numpy as np
import pytest

import layerscope as ls
from layerscope.alignment.aligner import by_place
from layerscope.errors import InputError
from layerscope.store import Store, keys_of


def arrays(seed=0, n=200):
    generator = np.random.default_rng(seed)
    return ls.Representations.from_arrays([generator.normal(size=(n, 8)) @ generator.normal(size=(8, 8))] * 2)


@pytest.mark.slow
def test_synthetic_truths_are_told_apart(tmp_path):
    generator = np.random.default_rng(0)
    reps = ls.Representations.from_arrays([generator.normal(size=(2000, 8)) @ generator.normal(size=(8, 8))])
    options = {"inn": {"steps": 400, "hidden": 64}}
    methods = ("mean", "procrustes", "linear", "cca", "inn")
    study = ls.synthetic_study(reps, repeats=1, methods=methods, options=options, true_maps=("linear", "inn"))
    error = study.frame.set_index(["truth", "noise", "method"])["relative"]
    assert error["linear", 0.0, "linear"] < 1e-8
    assert error["linear", 0.0, "cca"] < 1e-8
    assert error["linear", 0.0, "procrustes"] > 0.05
    assert error["inn", 0.0, "inn"] < 0.5 * error["inn", 0.0, "linear"]
    floor = 0.1**2 / (1 + 0.1**2)
    assert error["linear", 0.1, "linear"] == pytest.approx(floor, rel=0.15)
    assert study.frame[study.frame["method"] == "mean"]["relative"].min() > 0.95
    assert [figure.kind for figure in study.figures()] == ["box"] * 4 + ["table"]
    assert study.figures()[1].references == (("no map can do better", pytest.approx(floor)),)
    study.plot(tmp_path / "synthetic.svg")
    assert "procrustes" in (tmp_path / "synthetic.svg").read_text()


def test_the_summary_averages_over_repeats():
    study = ls.synthetic_study(arrays(), true_maps=["linear"], noise=[0.1], methods=["mean", "linear"], repeats=3)
    errors = study.frame[study.frame["method"] == "linear"]["relative"]
    assert len(errors) == 3
    row = study.summary.set_index("method").loc["linear"]
    assert row["relative"] == pytest.approx(errors.mean())
    assert row["relative sd"] == pytest.approx(errors.std())
    assert study.provenance["settings"]["repeats"] == 3


PLAIN = {"true_maps": ["linear"], "noise": [0.1], "methods": ["linear"], "repeats": 1}
CHANGES = {
    "true_maps": {"true_maps": ["inn"]},
    "noise": {"noise": [0.2]},
    "methods": {"methods": ["cca"]},
    "seed": {"seed": 1},
    "options": {"options": {"linear": {"strength": 0.5}}},
}


def keys(reps, **options):
    return keys_of(lambda: ls.synthetic_study(reps, **{**PLAIN, **options}))


def test_keys_are_known_before_anything_is_fitted():
    plain = keys(arrays())
    assert len(plain) == 1
    assert not Store().entries()
    assert len(set(keys(arrays(), true_maps=["linear", "inn"], noise=[0.0, 0.1], repeats=3))) == 12
    assert len(keys(arrays(), methods=None)) == len(by_place())
    assert keys(arrays(), layer=0) == plain  # the same array under another number
    assert keys(arrays(seed=5)) != plain
    assert keys(arrays(n=201)) != plain
    for change in CHANGES.values():
        assert not {*plain} & {*keys(arrays(), **change)}
    study = ls.synthetic_study(arrays(), **PLAIN)
    assert [entry.key for entry in Store().entries()] == plain
    again = ls.synthetic_study(arrays(), **PLAIN)
    assert again.frame.equals(study.frame)


def test_mistakes_are_sentences():
    with pytest.raises(InputError, match="at least 20 rows of 2 texts or more; there are 10 rows of 10"):
        ls.synthetic_study(arrays(n=10))
    with pytest.raises(InputError, match="no truth 'bent'"):
        ls.synthetic_study(arrays(), true_maps=["bent"])
    with pytest.raises(InputError, match="no alignment method 'lin'"):
        ls.synthetic_study(arrays(), methods=["lin"])
    with pytest.raises(InputError, match="seed is -1"):
        ls.synthetic_study(arrays(), seed=-1)


def test_every_fit_is_a_job_that_can_be_done_elsewhere(posted):
    given = {"true_maps": ["linear", "inn"], "noise": [0.1], "methods": ["linear"], "repeats": 2, "seed": 3}
    study = ls.synthetic_study(arrays(), engine="posted", **given)
    assert posted == [f"linear to {truth}, noise 0.1, repeat {k}" for truth in ("linear", "inn") for k in (0, 1)]
    assert ls.synthetic_study(arrays(), **given).frame.equals(study.frame)


def test_the_method_that_comes_nearest_is_named():
    reps = ls.Representations.from_arrays([np.random.default_rng(0).normal(size=(200, 4))])
    study = ls.synthetic_study(reps, true_maps=["linear"], noise=[0.0], methods=["mean", "linear"], repeats=1)
    told = study.findings()[0]
    assert told.text.startswith("Where the true map is linear, linear comes nearest: 0.0% of the spread")
