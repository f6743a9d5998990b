"""Resampled training sets: the right rows of the right classes, and nu that holds up where the plain form does not."""

import numpy as np
import pandas
import pytest

import layerscope as ls
from layerscope.errors import InputError
from layerscope.probing.robustness import drawn
from layerscope.recipes.recipe import read_recipe
from layerscope.results import Curve
from layerscope.store import Store
from tests.helpers.models import random_network, word_tokenizer


@pytest.fixture(scope="module")
def reps():
    generator = np.random.default_rng(0)
    labels = np.repeat([0, 1, 2], 400)
    centres = generator.normal(size=(3, 5)) * np.asarray([[1], [2], [3]])
    spread = np.asarray([0.5, 1.0, 3.0])[labels][:, None]  # classes of different width: their shares matter
    layers = [centres[labels] + spread * (1 + k) * generator.normal(size=(1200, 5)) for k in range(4)]
    return ls.Representations.from_arrays(layers, labels)


def test_drawn_rows(reps):
    part = drawn(reps, [10, 20, 400], seed=1)
    assert np.bincount(part.labels).tolist() == [10, 20, 400]
    assert len(set(part.rows.row.tolist())) == 430
    with pytest.raises(InputError, match="401 rows of class 2 were asked for; there are 400"):
        drawn(reps, [1, 1, 401])
    named = ls.task(pandas.DataFrame({"text": ["a", "b", "c"], "label": ["file", "list", "list"]}))
    rows = ls.extract(ls.load(random_network("bert", "encoder"), tokenizer=word_tokenizer()), named, pool="mean")
    with pytest.raises(InputError, match=r"3 rows of class list were asked for; there are 2. .* take more texts"):
        drawn(rows, [1, 3])


def test_equal_class_weights_hold_up_under_imbalance(reps):
    frame = ls.imbalance_study(reps, (1 / 3, 0.1, 0.05)).frame
    nu = frame.pivot_table(index="layer", columns="setting", values=["nu", "nu_rows"])
    change = {
        name: (nu[name] / nu[name]["p = 0.333"].to_numpy()[:, None]).sub(1).abs().max().max()
        for name in ("nu", "nu_rows")
    }
    assert change["nu"] < change["nu_rows"]
    assert change["nu"] < 0.35
    assert set(frame.columns) >= {"setting", "layer", "nu", "nu_rows", "zeta", "rho"}


def test_the_first_set_is_balanced_for_any_number_of_classes(reps):
    """Xie et al. 2022: .5, .25, .1 and .05 of two classes; of three the counts of appendix C.6, a hundredth of them."""
    two = reps.select(rows=np.flatnonzero(reps.labels < 2))
    assert drawn_counts(ls.imbalance_study(two, size=400)) == [[200, 200], [100, 300], [40, 360], [20, 380]]
    assert drawn_counts(ls.imbalance_study(reps, size=300))[:2] == [[100, 100, 100], [50, 125, 125]]
    largest = drawn_counts(ls.imbalance_study(reps))  # class 2 has 400 rows, which is 29/60 of the last set
    assert {sum(counts) for counts in largest} == {827}
    assert max(map(max, largest)) == 400
    paper = read_recipe("xie2022").profile("paper").by_task["mnli"]
    found = drawn_counts(ls.imbalance_study(reps, paper["shares"], size=paper["size"] // 100))
    assert found == [[100, 100, 100], [60, 120, 120], [180, 60, 60], [240, 30, 30]]
    assert [size // 3 for size in paper["sizes"]] == [20_000, 10_000, 5000, 1250, 300]


def drawn_counts(study):
    """The rows of every class in each setting."""
    return list(study.provenance["settings"]["drawn"].values())


@pytest.mark.parametrize(
    ("shares", "message"),
    [
        ([[0.5, 0.5]], "are 2, and there are 3 classes"),
        ([[0.5, 0.5, 0.5]], "add up to 1.5"),
        ([1.0], "must be between 0 and 1"),
        ([], "No shares were given"),
    ],
)
def test_shares_that_cannot_be_are_a_sentence(reps, shares, message):
    with pytest.raises(InputError, match=message):
        ls.imbalance_study(reps, shares)


def test_pools_and_tuned_models(tmp_path):
    """A base and another model, each under two pools: nu and probes of every layer, and how they go together."""
    texts = [f"{word} {k}" for k in range(40) for word in ("file", "list")]
    frame = pandas.DataFrame({"text": texts, "label": ["file", "list"] * 40})
    data = ls.task({"train": frame, "validation": frame[:30]})
    models = {
        name: ls.load(random_network("bert", "encoder", seed=seed), tokenizer=word_tokenizer())
        for seed, name in enumerate(("base", "tuned"))
    }
    result = ls.specialty_study(models, data)
    study = result.frame
    assert study["setting"].unique().tolist() == ["base, mean", "base, cls", "tuned, mean", "tuned, cls"]
    part = study[study["setting"] == "tuned, mean"]
    train = ls.extract(models["tuned"], data, split="train", pool="mean")
    nu, probe = ls.specialty(train), ls.probe(train, ls.extract(models["tuned"], data, pool="mean"))
    np.testing.assert_allclose(part["nu"], nu.values)
    np.testing.assert_allclose(part["score"], probe.values)
    np.testing.assert_equal(part["rho"].iloc[0], ls.agreement(nu, probe)["pearson"])
    assert np.isnan(study[(study["setting"] == "base, cls") & (study["layer"] == 0)]["nu"]).all()
    result.plot(tmp_path / "pools.svg")
    assert "base, cls" in (tmp_path / "pools.svg").read_text(encoding="utf-8")


def test_scarcity(reps, tmp_path):
    probe = Curve("accuracy", ["m"] * 4, [0, 1, 2, 3], np.asarray([0.9, 0.8, 0.6, 0.5]))
    result = ls.scarcity_study(reps, (1200, 300, 60), probe=probe)
    frame = result.frame
    assert frame.groupby("setting", sort=False)["n"].first().tolist() == [1200, 300, 60]
    assert (frame[frame["n"] >= 300]["rho"] > 0.9).all()  # with 60 rows nu is not to be trusted
    result.plot(tmp_path / "scarcity.png")
    assert (tmp_path / "scarcity.png").stat().st_size > 1000
    assert ls.scarcity_study(reps, (100,)).frame["n"].unique().tolist() == [
        100
    ]  # N in all, where classes cannot be even
    with pytest.raises(InputError, match="there are 400"):
        ls.scarcity_study(reps, (6000,))
    with pytest.raises(InputError, match="N is 2, which is fewer rows than there are classes"):
        ls.scarcity_study(reps, (2,))
    with pytest.raises(InputError, match="No sizes were given"):
        ls.scarcity_study(reps, [])
    with pytest.raises(InputError, match=r"sizes is \[30\.0\]; it must be a list of whole numbers"):
        ls.scarcity_study(reps, [30.0])
    with pytest.raises(InputError, match=r"size is 7\.5; it must be a whole number"):
        ls.imbalance_study(reps, size=7.5)
    sizes = ls.imbalance_study(reps, (0.5, 0.1), size=301).frame["n"].unique().tolist()
    assert sizes == [301]
    with pytest.raises(InputError, match="A share is 2"):
        ls.imbalance_study(reps, (2,))


def test_states_are_jobs_that_can_be_made_elsewhere(posted):
    texts = pandas.DataFrame({"text": [f"{word} {k}" for k in range(30) for word in ("file", "list")]})
    texts["label"] = [text.split()[0] for text in texts["text"]]
    data = ls.task({"train": texts[:40], "validation": texts[40:]})
    models = {"one": ls.load(random_network("bert", "encoder"), tokenizer=word_tokenizer())}
    study = ls.specialty_study(models, data, pools=["mean"], engine="posted")
    assert posted == ["mean states of one, train", "mean states of one, validation"]
    kept = {entry.key for entry in Store().entries()}
    here = ls.specialty_study(models, data, pools=["mean"])
    assert {entry.key for entry in Store().entries()} == kept
    pandas.testing.assert_frame_equal(here.frame, study.frame)
