"""Studies of alignment: the right rows and pairs, floors, figures, keys; rows that do not correspond are refused."""

import math

import numpy as np
import pandas
import pytest

import layerscope as ls
from layerscope.alignment.aligner import by_place, of_any_widths
from layerscope.alignment.alignment_study import SIMILARITY, _pairs, _sides, parts_of
from layerscope.errors import InputError
from layerscope.evaluation.evaluator import groups_of
from layerscope.extraction.extract import examples_of
from layerscope.extraction.pooling import Reading
from layerscope.store import Store, keys_of
from tests.helpers.models import random_network, word_tokenizer

QUICK = {"inn": {"steps": 100}, "mlp": {"steps": 100}}


@pytest.fixture(scope="module")
def other():
    model = ls.load(random_network("bert", "encoder", seed=7), tokenizer=word_tokenizer())
    model.name = "other"
    return model


def test_states_of_every_layer(seeds, data):
    study = ls.alignment_study(
        {"a": seeds[0], "b": seeds[1]}, data, methods=("mean", "linear", "pwcca", "inn"), pairs=1, options=QUICK
    )
    frame = study.frame
    assert set(frame["layer"]) == {0, 1, 2, 3, 4}
    assert (frame["layer"] == frame["target_layer"]).all()
    assert frame["source"].nunique() == 1
    assert frame[frame["split"] == "train"]["n"].unique().tolist() == [240]
    assert frame[frame["split"] == "test"]["n"].unique().tolist() == [120]
    row = frame[(frame["method"] == "linear") & (frame["layer"] == 4) & (frame["split"] == "test")].iloc[0]
    names = {"a": seeds[0], "b": seeds[1]}
    source, target = (
        [ls.extract(names[row[side]], data, split=split, pool="mean")[4] for split in ("train", "validation")]
        for side in ("source", "target")
    )
    expected = ls.align(source[0], target[0]).error(source[1], target[1])
    assert row["relative"] == pytest.approx(expected["relative"])
    group = groups_of(np.arange(120))
    aligner, rest = ls.align(source[0], target[0]), group != 3
    without = aligner.error(source[1][rest], target[1][rest])["relative"]
    assert study.left_out[row.name][3] == pytest.approx(without)
    mean = frame[(frame["method"] == "mean") & (frame["split"] == "train")]["relative"]
    np.testing.assert_allclose(mean, 1.0, rtol=1e-6)
    similar = frame[frame["method"] == "pwcca"]
    assert similar["relative"].isna().all()
    assert similar["similarity"].between(0, 1).all()
    # Ren et al. 2023, table 4: the mean over the layers 1 to L; layer 0, the embeddings, is none of them.
    expected = frame[(frame["method"] == "inn") & (frame["split"] == "test") & (frame["layer"] > 0)]["mse"].mean()
    assert study.summary.set_index("method").loc["inn", "mse test"] == pytest.approx(expected)
    assert [m["weights"] for m in study.provenance["models"]] == [seed.described()["weights"] for seed in seeds]
    assert study.provenance["data"]["n"] == 120
    assert study.provenance["settings"]["options"] == QUICK


def test_all_pairs_are_every_two_models_once():
    """Ren et al. 2023, figure 2: all pairs of 25 seeds are 300."""
    names = [f"s{k}" for k in range(25)]
    pairs = _pairs(names, "all", "same", 0)
    assert len(pairs) == len({frozenset(pair) for pair in pairs}) == 300 == math.comb(25, 2)
    assert _pairs(names, "8", "same", 0) == _pairs(names, 8, "same", 0)
    with pytest.raises(InputError, match="pairs is 'some'; it must be a number of at least 1, or all"):
        _pairs(names, "some", "same", 0)


def test_a_network_with_each_start_stands_under_its_own_name(seeds, data):
    both = ["linear", "inn start=plain", "inn start=linear"]
    study = ls.alignment_study(seeds, data, methods=both, layers=[2], pairs=1, options={"inn": {"steps": 1}})
    assert study.summary["method"].tolist() == both
    errors = study.frame[study.frame["split"] == "test"].set_index("method")["relative"]
    assert errors["inn start=linear"] == pytest.approx(errors["linear"], rel=0.01)  # one step adds next to nothing
    assert errors["inn start=plain"] > 1.05 * errors["linear"]
    with pytest.raises(InputError, match="linear has no option start"):
        ls.alignment_study(seeds, data, methods=["linear start=plain"])
    with pytest.raises(InputError, match="'plain' in 'inn plain' is not an option"):
        ls.alignment_study(seeds, data, methods=["inn plain"])


def test_texts_without_labels_serve_where_there_are_too_few(caplog):
    """Ren et al. 2023 score 1,600 sentences; the labelled validation split of MRPC has 408, its test split 1,725."""
    rows = [
        pandas.DataFrame({"text": [f"{part} {k}" for k in range(n)]}) for part, n in (("a", 30), ("b", 9), ("c", 40))
    ]
    splits = dict(zip(("train", "validation", "test"), rows, strict=True))
    splits = {name: frame.assign(label="x") if name != "test" else frame for name, frame in splits.items()}
    splits["train"].loc[0, "label"] = "y"
    task = ls.task(splits)
    learned, scored = parts_of(task, 20, 25)
    assert (learned.split, len(learned), scored.split, len(scored)) == ("train", 20, "test", 25)
    assert not caplog.text
    assert parts_of(task, 20, 9)[1].split == "validation"
    learned, scored = parts_of(task, 50, 60)
    assert "30 texts of" in caplog.text
    assert "serve to score, where 60 were asked for: there are no more." in caplog.text


def test_pairs_are_drawn_and_layers_meet(seeds, other, data, tmp_path):
    study = ls.alignment_study([*seeds, other], data, methods=["linear"], pairs=4, layers=[2, 4], train=100, test=60)
    assert len(study.frame[["source", "target"]].drop_duplicates()) == 4
    assert [figure.kind for figure in study.figures()] == ["curve", "box", "table"]
    study.plot(tmp_path / "curves.svg")
    assert "relative error" in (tmp_path / "curves.svg").read_text()
    boxes = study.figures()[1].boxes
    assert {name: len(values) for name, values in boxes.items()} == {"layer 2": 4, "layer 4": 4}
    study = ls.alignment_study([seeds[0]], data, methods=["linear"], target_layers="every", train=100, test=60)
    grid = study.frame
    assert len(grid[grid["split"] == "test"]) == 25
    same = grid[(grid["layer"] == grid["target_layer"]) & (grid["split"] == "test")]
    assert same["relative"].max() < 1e-6
    assert [figure.kind for figure in study.figures()] == ["heatmap", "table"]
    study.plot(tmp_path / "grid.png")
    assert (tmp_path / "grid.png").stat().st_size > 1000
    with pytest.raises(InputError, match="One model was given"):
        ls.alignment_study([seeds[0]], data)
    with pytest.raises(InputError, match="no alignment of 'heads'"):
        ls.alignment_study(seeds, data, representation="heads")


def test_every_method_is_in_a_study_unless_some_are_named(seeds, data):
    study = ls.alignment_study(seeds, data, pairs=1, layers=[4], train=60, test=40, options=QUICK)
    assert study.frame["method"].unique().tolist() == [*by_place(), SIMILARITY]
    assert [figure.kind for figure in study.figures()] == ["bars", "table"]
    bars = study.figures()[0]
    assert bars.names == tuple(by_place())
    assert all(low <= value <= high for low, value, high in zip(bars.low, bars.values, bars.high, strict=True))
    (finding,) = study.findings()
    assert "from seed-0 to seed-1 at layer 4" in finding.text


def test_attention_is_aligned_head_by_head(seeds, data):
    study = ls.alignment_study(seeds, data, representation="attention", methods=["linear"], pairs=1, train=50, test=40)
    frame = study.frame
    assert set(frame["layer"]) == {1, 2, 3, 4}
    words = [len(t.split()) for t in data.split("validation").texts[:40]]  # each is a token
    assert frame[frame["split"] == "test"]["n"].iloc[0] == sum(n * n for n in words)


@pytest.mark.parametrize("of", ["states", "attention"])
def test_no_text_is_learned_from_and_scored(of, seeds, data):
    """Words of one sentence are near copies of one another: they stay on one side."""
    only = ls.task(pandas.DataFrame({"text": data.split("train").texts}))
    parts = parts_of(only, 60, 30)
    learned, scored = _sides({"a": seeds[0]}, parts, None, of, Reading("tokens"), 0)["a"]
    assert [len(side.examples) for side in (learned, scored)] == [60, 30]
    assert not set(learned.examples.rows) & set(scored.examples.rows)


def test_rows_that_do_not_correspond_are_refused(seeds, data):
    xlnet = random_network("xlnet", "encoder")
    models = [seeds[0], ls.load(xlnet, tokenizer=word_tokenizer("xlnet"))]
    with pytest.raises(InputError, match="do not correspond"):
        ls.alignment_study(models, data, representation="attention", methods=["linear"], pairs=1, train=40, test=40)
    study = ls.alignment_study(models, data, methods=["linear"], pairs=1, train=40, test=40)  # whole texts do
    assert study.frame["relative"].notna().all()


def narrow(seeds):
    network = random_network("bert", labels=2, hidden_size=16)
    network.config.id2label = seeds[0].network.config.id2label
    return ls.load(network, tokenizer=word_tokenizer())


def test_widths_that_differ_leave_methods_out(seeds, data):
    options = {"pairs": 1, "layers": [4], "train": 60, "test": 40}
    study = ls.alignment_study([seeds[0], narrow(seeds)], data, options=QUICK, **options)
    assert set(study.frame["method"]) == {*of_any_widths(), "pwcca"}
    assert set(study.frame["method"]) >= {"mean", "linear", "cca", "svcca", "pwcca", "mlp"}
    padded = {**QUICK, "procrustes": {"pad": True}}
    study = ls.alignment_study([seeds[0], narrow(seeds)], data, options=padded, **options)
    assert set(study.frame["method"]) == {*of_any_widths(), "procrustes", "pwcca"}


def test_nothing_to_draw_is_a_sentence(seeds, data):
    options = {"pairs": 1, "layers": [0], "pool": "cls", "train": 40, "test": 40}
    study = ls.alignment_study(seeds, data, methods=["linear"], **options)
    with pytest.raises(InputError, match="nothing to draw"):
        study.plot()
    assert [figure.kind for figure in study.figures()] == ["table"]
    study = ls.alignment_study(seeds, data, methods=["pwcca"], **{**options, "pool": "mean"})
    assert [figure.kind for figure in study.figures()] == ["table"]
    assert study.findings() == []


def test_mistakes_are_sentences(seeds, data):
    only = pandas.DataFrame({"text": ["the file"], "label": ["file"]})
    with pytest.raises(InputError, match="seed is -1"):
        ls.alignment_study(seeds, data, seed=-1)
    with pytest.raises(InputError, match="table has one row; at least one to learn from and one to score"):
        ls.alignment_study(seeds, only, methods=["linear"])
    with pytest.raises(InputError, match="test is 0"):
        ls.alignment_study(seeds, data, test=0)
    with pytest.raises(InputError, match="there is no split 'validation' to take"):
        examples_of(data.split("train"), "validation", None)
    with pytest.raises(InputError, match="no alignment of 'words'; allowed: states, attention"):
        ls.alignment_study(seeds, data, representation="words")
    with pytest.raises(InputError, match="no alignment method 'lin'"):
        ls.alignment_study(seeds, data, options={"lin": {}})
    with pytest.raises(InputError, match="linear has no option steps"):
        ls.alignment_study(seeds, data, methods=["linear"], options={"linear": {"steps": 3}})


PLAIN = {"methods": ["mean", "linear"], "pairs": 1, "train": 60, "test": 40}
CHANGES = {
    "method": {"methods": ["mean", "cca"]},
    "seed": {"seed": 1},
    "options": {"options": {"linear": {"strength": 0.5}}},
    "layers": {"layers": [1, 2]},
    "target_layers": {"target_layers": "every"},
    "train": {"train": 61},
    "pool": {"pool": "cls"},
    "max_length": {"max_length": 16},
    "representation": {"representation": "attention"},
    "representation, max_length": {"representation": "attention", "max_length": 16},
    "representation, seed": {"representation": "attention", "seed": 1},
}


def keys(models, data, **options):
    return keys_of(lambda: ls.alignment_study(models, data, **{**PLAIN, **options}))


def test_keys_are_known_before_anything_is_computed(seeds, other, data):
    """All pairs and methods, under names that the models' own do not change."""
    plain = keys(seeds, data)
    assert len(set(plain)) == 2
    assert not Store().entries()
    assert len(set(keys([*seeds, other], data, pairs=4))) == 8
    assert keys({"a": seeds[0], "b": seeds[1]}, data) == plain
    assert set(keys(seeds, data, pairs=2)) == {*plain, *keys(seeds[::-1], data)}
    assert not {*plain} & {*keys(seeds[::-1], data)}
    assert not {*plain} & {*keys([seeds[0], other], data)}
    assert keys(seeds, data, options={"linear": {"strength": "cv"}}) == plain  # as it is if not given
    ls.alignment_study(seeds, data, **PLAIN)
    assert {entry.key for entry in Store().entries() if entry.kind == "aligners"} == {*plain}


@pytest.mark.parametrize("change", CHANGES)
def test_whatever_an_aligner_learns_from_is_in_its_key(change, seeds, data):
    others = [keys(seeds, data, **options) for name, options in CHANGES.items() if name != change]
    changed = keys(seeds, data, **CHANGES[change])
    assert changed[1] not in [key for known in (keys(seeds, data), *others) for key in known]


def test_texts_that_are_scored_are_in_a_key_where_they_decide_what_is_learned_from(seeds, data):
    assert keys(seeds, data, test=41) == keys(seeds, data)
    only = ls.task(pandas.DataFrame({"text": data.split("train").texts}))
    assert not {*keys(seeds, only, train=200, test=41)} & {*keys(seeds, only, train=200, test=60)}


def test_weights_edited_in_place_make_other_keys(data):
    model, target = (ls.load(random_network("bert", "encoder", seed=k), tokenizer=word_tokenizer()) for k in (3, 4))
    before = keys([model, target], data)
    next(model.network.parameters()).data.add_(1.0)
    assert not {*before} & {*keys([model, target], data)}


def test_similarities_alone_ask_for_states(seeds, data):
    assert len(keys(seeds, data, methods=["pwcca"])) == 1


def test_a_model_without_a_key_is_aligned_all_the_same(seeds, data):
    model = ls.load(random_network("bert", "encoder", seed=9), tokenizer=word_tokenizer())
    model.network.register_forward_hook(lambda *_: None)
    study = ls.alignment_study([seeds[0], model], data, **PLAIN, layers=[4])
    assert study.frame["mse"].notna().all()
    assert not [entry for entry in Store().entries() if entry.kind == "aligners"]


def test_every_fit_is_a_job_that_can_be_done_elsewhere(seeds, data, posted):
    given = {"methods": ["linear", "mean", "pwcca"], "pairs": 2, "layers": [2, 4], "train": 60, "test": 40}
    study = ls.alignment_study(seeds, data, engine="posted", **given)
    assert sorted(posted) == sorted(
        f"{method} from {pair}" for method in ("linear", "mean") for pair in ("seed-0 to seed-1", "seed-1 to seed-0")
    )
    kept = {entry.key for entry in Store().entries()}
    here = ls.alignment_study(seeds, data, **given)
    assert {entry.key for entry in Store().entries()} == kept  # nothing was fitted again
    pandas.testing.assert_frame_equal(here.frame, study.frame)
    attended = ls.alignment_study(
        seeds, data, representation="attention", engine="posted", **{**given, "methods": ["linear"]}
    )
    assert attended.frame["relative"].notna().all()


def test_an_engine_that_does_not_exist_is_refused(seeds, data):
    for study in (ls.alignment_study, ls.injection_study, ls.synthetic_study):
        given = (seeds, data) if study is ls.alignment_study else (*seeds, data)
        with pytest.raises(ls.LayerscopeError, match="engine 'slurm'"):
            study(*given[: 1 if study is ls.synthetic_study else None], engine="slurm")


@pytest.mark.slow
def test_a_study_on_other_processes_gives_the_same(seeds, data):
    given = {"methods": ["linear"], "pairs": 1, "layers": [2, 4], "train": 60, "test": 40}
    spread = ls.alignment_study(seeds, data, engine="processes:2", **given)
    kept = {entry.key for entry in Store().entries()}
    here = ls.alignment_study(seeds, data, **given)
    assert {entry.key for entry in Store().entries()} == kept
    pandas.testing.assert_frame_equal(here.frame, spread.frame)
