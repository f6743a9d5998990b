"""Studies of alignment and injection: the right rows and pairs, floors, figures; two trained seeds that agree."""

import numpy as np
import pandas
import pytest
import zoo

import layerscope as ls
from layerscope.analysis.alignment import _Rows
from layerscope.analysis.injection import RANDOM_EMBEDDING, RANDOM_LABEL, random_labels, reads_summary
from layerscope.errors import InputError
from layerscope.extract.run import examples_of

QUICK = {"inn": {"steps": 100}, "mlp": {"steps": 100}}


@pytest.fixture(scope="module")
def data():
    generator = np.random.default_rng(0)
    others = ["value", "return", "object", "string", "and", "the", "of", "in"]
    labels = generator.integers(0, 2, 360)
    key = np.asarray(["file", "list"])[labels]
    texts = [" ".join(generator.permutation([*generator.choice(others, generator.integers(3, 9)), k])) for k in key]
    frame = pandas.DataFrame({"text": texts, "label": key})
    return ls.task({"train": frame[:240], "validation": frame[240:]})


@pytest.fixture(scope="module")
def seeds(data, tmp_path_factory):
    """Two seeds of a small model, trained on the same data."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAYERSCOPE_HOME", str(tmp_path_factory.mktemp("seeds")))
        return trained(data)


def trained(data):
    runs = [
        ls.tune(
            ls.load(zoo.network("bert", "encoder", seed=seed), tokenizer=zoo.tokenizer()),
            data,
            seed=seed,
            learning_rate=3e-3,
            batch=16,
            epochs=6,
        )
        for seed in (0, 1)
    ]
    assert min(run.score for run in runs) > 0.95
    return [ls.load(run.model) for run in runs]


def test_states_of_every_layer(seeds, data):
    frame = ls.alignment_study(
        {"a": seeds[0], "b": seeds[1]}, data, methods=("mean", "linear", "pwcca", "inn"), pairs=1, options=QUICK
    )
    assert set(frame["layer"]) == {0, 1, 2, 3, 4}
    assert (frame["layer"] == frame["target_layer"]).all()
    assert frame["source"].nunique() == 1
    assert frame[frame["split"] == "train"]["n"].unique().tolist() == [240]
    assert frame[frame["split"] == "test"]["n"].unique().tolist() == [120]
    row = frame[(frame["method"] == "linear") & (frame["layer"] == 4) & (frame["split"] == "test")].iloc[0]
    names = {"a": seeds[0], "b": seeds[1]}
    one, two = (
        [ls.extract(names[row[side]], data, split=split, pool="mean")[4] for split in ("train", "validation")]
        for side in ("source", "target")
    )
    expected = ls.align(one[0], two[0]).error(one[1], two[1])
    assert row["relative"] == pytest.approx(expected["relative"])
    mean = frame[(frame["method"] == "mean") & (frame["split"] == "train")]["relative"]
    np.testing.assert_allclose(mean, 1.0, rtol=1e-6)
    similar = frame[frame["method"] == "pwcca"]
    assert similar["relative"].isna().all()
    assert similar["similarity"].between(0, 1).all()
    table = ls.alignment_table(frame).set_index("method")
    expected = frame[(frame["method"] == "inn") & (frame["split"] == "test")]["mse"].mean()
    assert table.loc["inn", "mse test"] == pytest.approx(expected)


def test_pairs_are_drawn_and_layers_meet(seeds, data, tmp_path):
    three = [*seeds, zoo.network("bert", "encoder", seed=7)]
    loaded = [ls.load(m, tokenizer=zoo.tokenizer()) for m in three]
    frame = ls.alignment_study(loaded, data, methods=["linear"], pairs=4, layers=[2, 4], train=100, test=60)
    assert len(frame[["source", "target"]].drop_duplicates()) == 4
    ls.plot_alignment(frame, tmp_path / "boxes.svg")
    assert "relative error" in (tmp_path / "boxes.svg").read_text()
    grid = ls.alignment_study([seeds[0]], data, methods=["linear"], against="every", train=100, test=60)
    assert len(grid[grid["split"] == "test"]) == 25
    same = grid[(grid["layer"] == grid["target_layer"]) & (grid["split"] == "test")]
    assert same["relative"].max() < 1e-6
    ls.plot_alignment(grid, tmp_path / "grid.png")
    assert (tmp_path / "grid.png").stat().st_size > 1000
    with pytest.raises(InputError, match="One model was given"):
        ls.alignment_study([seeds[0]], data)
    with pytest.raises(InputError, match="no alignment of 'heads'"):
        ls.alignment_study(seeds, data, of="heads")


def test_attention_is_aligned_head_by_head(seeds, data):
    frame = ls.alignment_study(seeds, data, of="attention", methods=["linear"], pairs=1, train=50, test=40)
    assert set(frame["layer"]) == {1, 2, 3, 4}
    words = [len(t.split()) for t in data.split("validation").texts[:40]]  # each is a token
    assert frame[frame["split"] == "test"]["n"].iloc[0] == sum(n * n for n in words)


def test_synthetic_truths_are_told_apart():
    generator = np.random.default_rng(0)
    reps = ls.Representations.from_arrays([generator.normal(size=(2000, 8)) @ generator.normal(size=(8, 8))])
    options = {"inn": {"steps": 400, "hidden": 64}}
    methods = ("mean", "procrustes", "linear", "cca", "inn")
    frame = ls.synthetic_study(reps, repeats=1, methods=methods, options=options, truths=("linear", "inn"))
    error = frame.set_index(["truth", "noise", "method"])["relative"]
    assert error["linear", 0.0, "linear"] < 1e-8
    assert error["linear", 0.0, "cca"] < 1e-8
    assert error["linear", 0.0, "procrustes"] > 0.05
    assert error["inn", 0.0, "inn"] < 0.5 * error["inn", 0.0, "linear"]
    floor = 0.1**2 / (1 + 0.1**2)
    assert error["linear", 0.1, "linear"] == pytest.approx(floor, rel=0.15)
    assert frame[frame["method"] == "mean"]["relative"].min() > 0.95


def test_injection_of_another_seed_beats_the_floors(seeds, data, tmp_path):
    frame = ls.injection_study(*seeds, data, layers="all", methods=("identity", "linear", "inn"), options=QUICK)
    last = frame[frame["layer"] == 4].set_index("method")["score"]
    floors = max(last[RANDOM_EMBEDDING], last[RANDOM_LABEL])
    assert last["linear"] > floors + 0.2
    assert last["inn"] > floors + 0.2
    assert frame["target_score"].iloc[0] == pytest.approx(ls.evaluate(seeds[1], data))
    assert frame["source_score"].iloc[0] == pytest.approx(ls.evaluate(seeds[0], data))
    assert frame[frame["method"] == RANDOM_LABEL]["score"].between(0.35, 0.65).all()
    assert set(frame["layer"]) == {0, 1, 2, 3, 4}
    own = ls.injection_study(seeds[0], seeds[0], data, methods=["identity"]).set_index("method")["score"]
    assert own["identity"] == pytest.approx(frame["source_score"].iloc[0])
    ls.plot_injection(frame, tmp_path / "injection.svg")
    assert "random embedding" in (tmp_path / "injection.svg").read_text()


def test_one_split_is_cut_in_two(seeds, data):
    """Labels that nobody can learn score at chance on rows that were not learned from."""
    part = data.split("train")
    only = ls.task(pandas.DataFrame({"text": part.texts, "label": np.random.default_rng(3).integers(0, 2, len(part))}))
    found = ls.injection_study(*seeds, data, split="train", methods=["identity"], train=100)
    assert found["n"].iloc[0] == 140
    choice = ls.choose(seeds[0], only)
    assert abs(choice.probe.values.mean() - 0.5) < 0.1


def test_a_file_sorted_by_label_is_drawn_from(seeds, data):
    part = data.split("train")
    rows = pandas.DataFrame({"text": part.texts, "label": [part.label_names[k] for k in part.labels]})
    found = ls.injection_study(*seeds, rows.sort_values("label"), methods=["identity"], train=30, limit=60)
    assert found["n"].iloc[0] == 60
    assert found["majority"].iloc[0] < 0.7
    learned, scored = ls.task(rows.sort_values("label")).parted(0.5, limits=(30, 60))
    assert not set(learned.rows) & set(scored.rows)
    assert all(0.3 < part.labels.mean() < 0.7 for part in (learned, scored))


@pytest.mark.parametrize("of", ["states", "attention"])
def test_no_text_is_learned_from_and_scored(of, data):
    """Words of one sentence are near copies of one another: they stay on one side."""
    only = ls.task(pandas.DataFrame({"text": data.split("train").texts}))
    rows = _Rows(only, None, of, "tokens", 60, 30, 128, 0)
    assert [len(part) for part in rows.parts] == [60, 30]
    assert not set(rows.parts[0].rows) & set(rows.parts[1].rows)


def test_rows_that_do_not_correspond_are_refused(seeds, data):
    other = zoo.network("xlnet", "encoder")
    models = [seeds[0], ls.load(other, tokenizer=zoo.tokenizer("xlnet"))]
    with pytest.raises(InputError, match="do not correspond"):
        ls.alignment_study(models, data, of="attention", methods=["linear"], pairs=1, train=40, test=40)
    frame = ls.alignment_study(models, data, methods=["linear"], pairs=1, train=40, test=40)  # whole texts do
    assert frame["relative"].notna().all()


def test_widths_that_differ_leave_methods_out(seeds, data):
    narrow = zoo.network("bert", labels=2, hidden_size=16)
    narrow.config.id2label = seeds[0].network.config.id2label
    narrow = ls.load(narrow, tokenizer=zoo.tokenizer())
    frame = ls.alignment_study([seeds[0], narrow], data, pairs=1, layers=[4], train=60, test=40, options=QUICK)
    assert set(frame["method"]) == {"mean", "linear", "cca", "svcca", "pwcca", "mlp"}
    found = ls.injection_study(seeds[0], narrow, data, train=60, options=QUICK)
    assert "procrustes" not in set(found["method"])


def test_a_source_in_training_mode_is_evaluated_all_the_same(seeds, data):
    options = {"methods": ["linear"], "limit": 40, "train": 60}
    expected = ls.injection_study(*seeds, data, **options)["score"]
    seeds[0].network.train()
    try:
        found = [ls.injection_study(*seeds, data, **options)["score"] for _ in range(2)]
    finally:
        seeds[0].network.eval()
    for scores in found:
        pandas.testing.assert_series_equal(scores, expected)


def test_nothing_to_draw_is_a_sentence(seeds, data):
    frame = ls.alignment_study(seeds, data, methods=["linear"], pairs=1, layers=[0], pool="cls", train=40, test=40)
    with pytest.raises(InputError, match="nothing to draw"):
        ls.plot_alignment(frame)


def test_mistakes_are_sentences(seeds, data):
    one = pandas.DataFrame({"text": ["the file"], "label": ["file"]})
    with pytest.raises(InputError, match="seed is -1"):
        ls.alignment_study(seeds, data, seed=-1)
    with pytest.raises(InputError, match="seed is -1"):
        ls.injection_study(*seeds, data, seed=-1)
    with pytest.raises(InputError, match="table has one row; at least one to learn from and one to score"):
        ls.alignment_study(seeds, one, methods=["linear"])
    with pytest.raises(InputError, match="limit is 0"):
        ls.injection_study(*seeds, data, limit=0)
    with pytest.raises(InputError, match="train is -3"):
        ls.injection_study(*seeds, data, train=-3)
    with pytest.raises(InputError, match="test is 0"):
        ls.alignment_study(seeds, data, test=0)
    with pytest.raises(InputError, match="there is no split 'validation' to take"):
        examples_of(data.split("train"), "validation", None)
    with pytest.raises(InputError, match="no alignment of 'words'; allowed: states, attention"):
        ls.alignment_study(seeds, data, of="words")


def test_what_a_head_reads(seeds):
    assert reads_summary(seeds[0])
    mean = zoo.network("modernbert", labels=2, classifier_pooling="mean")
    assert not reads_summary(ls.load(mean, tokenizer=zoo.tokenizer()))


def test_random_labels():
    labels = np.repeat([0, 1, 2], 200)
    assert random_labels(labels, "accuracy", 0, 3) == pytest.approx(1 / 3, abs=0.03)
    assert random_labels(labels[:400], "accuracy", 0, 3) == pytest.approx(1 / 3, abs=0.03)  # class 2 has no rows
    assert abs(random_labels(np.linspace(0, 1, 200), "pearson_spearman", 0, 1)) < 0.1
