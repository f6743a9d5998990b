"""Injection studies: another seed beats the floors, rows that are learned from are not scored, figures and keys."""

import numpy as np
import pandas
import pytest

import layerscope as ls
from layerscope.alignment.aligner import by_place
from layerscope.alignment.injection_study import RANDOM_EMBEDDING, RANDOM_LABEL, random_labels, reads_summary
from layerscope.errors import InputError
from layerscope.store import Store, keys_of
from tests.helpers.models import random_network, word_tokenizer

QUICK = {"inn": {"steps": 100}, "mlp": {"steps": 100}}


def test_injection_of_another_seed_beats_the_floors(seeds, data, tmp_path):
    study = ls.injection_study(*seeds, data, layers="all", methods=("identity", "linear", "inn"), options=QUICK)
    frame = study.frame
    last = frame[frame["layer"] == 4].set_index("method")["score"]
    floors = max(last[RANDOM_EMBEDDING], last[RANDOM_LABEL])
    assert last["linear"] > floors + 0.2
    assert last["inn"] > floors + 0.2
    assert frame["target_score"].iloc[0] == pytest.approx(ls.evaluate(seeds[1], data))
    assert (frame["low"] <= frame["score"]).all()
    assert (frame["score"] <= frame["high"]).all()
    assert (frame["high"] - frame["low"])[frame["score"].between(0.2, 0.8)].between(0.05, 0.3).all()  # of 120 texts
    assert frame["target_low"].iloc[0] <= frame["target_score"].iloc[0] <= frame["target_high"].iloc[0]
    mapped = frame[frame["method"] != RANDOM_LABEL]
    np.testing.assert_allclose(mapped["lost"], mapped["target_score"] - mapped["score"])
    assert (mapped["lost_low"] <= mapped["lost"]).all()
    wide = mapped["target_high"] - mapped["target_low"] + mapped["high"] - mapped["low"]
    assert (mapped["lost_high"] - mapped["lost_low"] < wide + 0.05).all()  # text for text: narrower than apart
    assert frame[frame["method"] == RANDOM_LABEL]["lost"].isna().all()
    assert study.figures()[0].series[0].low == tuple(frame[frame["method"] == "identity"]["low"])
    assert frame["source_score"].iloc[0] == pytest.approx(ls.evaluate(seeds[0], data))
    assert frame[frame["method"] == RANDOM_LABEL]["score"].between(0.35, 0.65).all()
    assert set(frame["layer"]) == {0, 1, 2, 3, 4}
    own = ls.injection_study(seeds[0], seeds[0], data, methods=["identity"]).frame.set_index("method")["score"]
    assert own["identity"] == pytest.approx(frame["source_score"].iloc[0])
    assert [figure.kind for figure in study.figures()] == ["curve", "table"]
    study.plot(tmp_path / "injection.svg")
    assert "random embedding" in (tmp_path / "injection.svg").read_text()
    assert [m["name"] for m in study.provenance["models"]] == ["seed-0", "seed-1"]
    assert study.provenance["data"]["n"] == 120


def test_one_layer_is_drawn_as_bars(seeds, data):
    study = ls.injection_study(*seeds, data, limit=60, train=60, options=QUICK)
    assert study.frame["method"].tolist() == [*by_place(), RANDOM_EMBEDDING, RANDOM_LABEL]
    bars, table = study.figures()
    assert bars.kind == "bars"
    assert bars.names == tuple(study.frame["method"])
    assert bars.low == tuple(study.frame["low"])
    assert [name for name, _ in bars.references] == ["source alone", "target alone", "most frequent class"]
    assert table.kind == "table"
    (finding,) = study.findings()
    assert "layer 4" in finding.text


def test_one_split_is_cut_in_two(seeds, data):
    study = ls.injection_study(*seeds, data, split="train", methods=["identity"], train=100)
    assert study.frame["n"].iloc[0] == 140


def test_a_file_sorted_by_label_is_drawn_from(seeds, data):
    part = data.split("train")
    rows = pandas.DataFrame({"text": part.texts, "label": [part.label_names[k] for k in part.labels]})
    study = ls.injection_study(*seeds, rows.sort_values("label"), methods=["identity"], train=30, limit=60)
    assert study.frame["n"].iloc[0] == 60
    assert study.frame["majority"].iloc[0] < 0.7
    learned, scored = ls.task(rows.sort_values("label")).parted(0.5, limits=(30, 60))
    assert not set(learned.rows) & set(scored.rows)
    assert all(0.3 < part.labels.mean() < 0.7 for part in (learned, scored))


def test_widths_that_differ_leave_methods_out(seeds, data):
    network = random_network("bert", labels=2, hidden_size=16)
    network.config.id2label = seeds[0].network.config.id2label
    narrow = ls.load(network, tokenizer=word_tokenizer())
    study = ls.injection_study(seeds[0], narrow, data, train=60, options=QUICK)
    assert "procrustes" not in set(study.frame["method"])


def test_a_source_in_training_mode_is_evaluated_all_the_same(seeds, data):
    options = {"methods": ["linear"], "limit": 40, "train": 60}
    expected = ls.injection_study(*seeds, data, **options).frame["score"]
    seeds[0].network.train()
    try:
        studies = [ls.injection_study(*seeds, data, **options) for _ in range(2)]
    finally:
        seeds[0].network.eval()
    for study in studies:
        pandas.testing.assert_series_equal(study.frame["score"], expected)


def test_mistakes_are_sentences(seeds, data):
    with pytest.raises(InputError, match="seed is -1"):
        ls.injection_study(*seeds, data, seed=-1)
    with pytest.raises(InputError, match="limit is 0"):
        ls.injection_study(*seeds, data, limit=0)
    with pytest.raises(InputError, match="train is -3"):
        ls.injection_study(*seeds, data, train=-3)
    with pytest.raises(InputError, match="layers is 'some'"):
        ls.injection_study(*seeds, data, layers="some")
    with pytest.raises(InputError, match="layers is empty"):
        ls.injection_study(*seeds, data, layers=[])


PLAIN = {"methods": ["linear"], "train": 60, "layers": [2]}
CHANGES = {
    "methods": {"methods": ["cca"]},
    "train": {"train": 61},
    "layers": {"layers": [3]},
    "the last layer": {"layers": [4]},
    "max_length": {"max_length": 16},
    "seed": {"seed": 1},
    "options": {"options": {"linear": {"strength": 0.5}}},
    "split": {"split": "train"},
}


def keys(source, target, data, **options):
    return keys_of(lambda: ls.injection_study(source, target, data, **{**PLAIN, **options}))


def test_keys_are_known_before_anything_is_computed(seeds, data):
    plain = keys(*seeds, data)
    assert len(plain) == 1
    assert not Store().entries()
    assert len(set(keys(*seeds, data, layers="all", methods=["mean", "linear"]))) == 10
    assert keys(*seeds, data, limit=30) == plain  # what is scored is not learned from
    known = [plain, keys(*seeds[::-1], data), keys(seeds[0], seeds[0], data)]
    known += [keys(*seeds, data, **change) for change in CHANGES.values()]
    assert len({key for some in known for key in some}) == len(known)
    ls.injection_study(*seeds, data, **PLAIN)
    assert [entry.key for entry in Store().entries() if entry.kind == "aligners"] == plain


def test_what_a_head_reads(seeds):
    assert reads_summary(seeds[0])
    mean = random_network("modernbert", labels=2, classifier_pooling="mean")
    assert not reads_summary(ls.load(mean, tokenizer=word_tokenizer()))


def test_random_labels():
    labels = np.repeat([0, 1, 2], 200)
    guessed = random_labels(labels, "accuracy", 0, 3)
    assert guessed["score"] == pytest.approx(1 / 3, abs=0.03)
    assert guessed["high"] - guessed["low"] == pytest.approx(4 * (2 / 9 / 600) ** 0.5, rel=0.25)
    assert random_labels(labels[:400], "accuracy", 0, 3)["score"] == pytest.approx(
        1 / 3, abs=0.03
    )  # no row has class 2
    choices = np.asarray([2, 4] * 500)
    assert random_labels(np.zeros(1000, int), "accuracy", 0, choices)["score"] == pytest.approx(0.375, abs=0.01)
    assert abs(random_labels(np.linspace(0, 1, 200), "pearson_spearman", 0, 1)["score"]) < 0.1


def test_every_fit_is_a_job_that_can_be_done_elsewhere(seeds, data, posted):
    given = {"layers": [2, 4], "methods": ["mean", "linear"], "limit": 40, "train": 60}
    study = ls.injection_study(*seeds, data, engine="posted", **given)
    assert posted == [f"{method} from layer {k} to layer {k}" for k in (2, 4) for method in ("mean", "linear")]
    pandas.testing.assert_frame_equal(ls.injection_study(*seeds, data, **given).frame, study.frame)
