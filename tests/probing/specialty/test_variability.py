"""nu against the plain formula with numpy's pseudo-inverse, streaming against one shot, and its invariances."""

import math

import numpy as np
import pandas
import pytest

import layerscope as ls
from layerscope.errors import InputError, LayerscopeWarning
from layerscope.extraction.row_store import Rows
from layerscope.probing import score_curves, specialty
from layerscope.probing.permutation import permuted_labels
from layerscope.store import keys_of
from tests.helpers.data import class_rows, plain_nu
from tests.helpers.models import random_network, save_random, word_tokenizer


@pytest.mark.parametrize("weighting", ["class", "rows"])
@pytest.mark.parametrize(
    ("n", "d", "sizes"),
    [
        (300, 10, (0.5, 0.5)),
        (300, 10, (0.9, 0.1)),
        (400, 40, (0.7, 0.2, 0.1)),
        (500, 30, (0.4, 0.3, 0.1, 0.1, 0.1)),
        (60, 100, (0.6, 0.4)),
        (2000, 768, (0.5, 0.3, 0.2)),
        (200, 768, (0.5, 0.3, 0.2)),
    ],
)
def test_the_plain_formula(n, d, sizes, weighting):
    x, labels = class_rows(n, d, sizes)
    reps = ls.Representations.from_arrays([x], labels)
    assert ls.specialty(reps, weighting=weighting).values[0] == pytest.approx(
        plain_nu(reps[0].double().numpy(), labels, weighting), rel=1e-5
    )


def test_invariances():
    x, labels = class_rows(300, 12, (0.6, 0.3, 0.1))
    generator = np.random.default_rng(1)
    rotation = np.linalg.qr(generator.normal(size=(12, 12)))[0]
    before = ls.specialty(ls.Representations.from_arrays([x], labels)).values[0]
    for other, others in ((x @ rotation, labels), (7 * x, labels), (x + 100, labels), (x, (labels + 1) % 3)):
        assert ls.specialty(ls.Representations.from_arrays([other], others)).values[0] == pytest.approx(
            before, rel=1e-4
        )


def test_the_best_layer_is_the_least_above_layer_0():
    x, labels = class_rows(200, 6, (0.5, 0.5))
    noise = np.random.default_rng(0).normal(size=x.shape)
    reps = ls.Representations.from_arrays([x, x + 3 * noise, x + noise, x + 2 * noise], labels)
    curve = ls.specialty(reps)
    assert curve.layers == [0, 1, 2, 3]
    assert curve.best == 2
    assert np.argmin(curve.values) == 0
    assert list(curve.frame["nu"]) == list(curve.values)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_streaming_is_one_shot(family, tmp_path, caplog):
    words = ["file", "list", "value", "return", "object", "string", "and", "the", "of", "in"]
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(words, size=generator.integers(2, 12))) for _ in range(90)]
    frame = pandas.DataFrame({"text": texts, "label": np.repeat([0, 1, 2], [60, 20, 10])})
    model = ls.load(random_network(family, "encoder"), tokenizer=word_tokenizer(family))
    streamed = ls.specialty(model, frame, max_length=8)
    stored = ls.specialty(ls.extract(model, frame, pool="mean", max_length=8))
    np.testing.assert_allclose(streamed.values, stored.values, rtol=1e-3)
    assert streamed.best == stored.best
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 2
    assert said[0] == said[1]
    assert "are cut off at 8 tokens" in said[0]


def test_edges():
    x, labels = class_rows(100, 5, (0.5, 0.5))
    same = ls.Representations.from_arrays([np.full((100, 5), 0.1), x], labels)
    assert math.isnan(ls.specialty(same).values[0])
    assert ls.specialty(same).best == 1
    assert ls.specialty(same).provenance["undefined"] == (
        "nu has no value in layer 0: the means of all classes are the same there up to rounding."
    )
    assert ls.specialty(same).figures()[0].caveat.startswith("nu has no value in layer 0")
    lonely = np.concatenate([np.zeros(99, int), [1]])
    with pytest.warns(LayerscopeWarning, match="1 class has one row only"):
        curve = ls.specialty(ls.Representations.from_arrays([x], lonely))
    assert curve.values[0] == pytest.approx(plain_nu(x, lonely), rel=1e-3)
    gap = ls.Representations.from_arrays([x], labels * 2)  # class 1 of 0, 1, 2 has no rows
    assert ls.specialty(gap).values[0] == pytest.approx(plain_nu(x, labels), rel=1e-4)
    with pytest.raises(InputError, match="1 class only"):
        ls.specialty(ls.Representations.from_arrays([x], np.zeros(100, int)))
    with pytest.raises(InputError, match="each of the 100 rows has a class of its own"):
        ls.specialty(ls.Representations.from_arrays([x], np.arange(100)))
    with pytest.raises(InputError, match="labels are numbers"):
        ls.specialty(ls.Representations.from_arrays([x], labels + 0.5))
    with pytest.raises(InputError, match="needs labels"):
        ls.specialty(ls.Representations.from_arrays([x]))
    for name, value in {"split": "train", "limit": 10, "pool": "cls", "max_length": 64}.items():
        with pytest.raises(InputError, match=f"{name} was given together with representations"):
            ls.specialty(same, **{name: value})
    with pytest.raises(InputError, match="no weighting 'classes'"):
        ls.specialty(same, weighting="classes")


def test_smoothness():
    _, labels = class_rows(50, 3, (0.5, 0.5))
    curve = ls.specialty(
        ls.Representations.from_arrays([class_rows(50, 3, (0.5, 0.5), s)[0] for s in range(5)], labels)
    )
    values = curve.values[1:]
    scaled = (values - values.mean()) / values.std()
    expected = sum((scaled[k + 2] - 2 * scaled[k + 1] + scaled[k]) ** 2 for k in range(2))
    assert ls.smoothness(curve) == pytest.approx(expected)
    two = ls.Curve("nu", ["a"] * 5 + ["b"] * 5, [*range(5)] * 2, np.arange(10.0))
    with pytest.raises(InputError, match="zeta is of one model's layers, and this curve is of 2: a, b"):
        ls.smoothness(two)


def test_intervals_and_how_often_each_layer_wins():
    x, labels = class_rows(400, 6, (0.5, 0.5))
    noise = np.random.default_rng(0).normal(size=(4, *x.shape))
    clear = ls.Representations.from_arrays([x, x + 4 * noise[0], x, x + 4 * noise[1]], labels)
    curve = ls.specialty(clear, ci=0.95)
    assert curve.wins[2] == 1.0
    assert (curve.low <= curve.values).all()
    assert (curve.values <= curve.high).all()
    flat = ls.specialty(ls.Representations.from_arrays([x, *(x + n for n in noise)], labels), ci=0.95)
    assert flat.wins[0] == 0.0
    assert flat.wins.sum() == pytest.approx(1.0)
    assert flat.wins.max() < 0.9
    assert set(flat.frame) >= {"low", "high", "wins"}


def test_intervals_cover_the_truth():
    x, labels = class_rows(40000, 4, (0.5, 0.5), 9)
    truth = ls.specialty(ls.Representations.from_arrays([x], labels), null=0).values[0]
    hits = 0
    for seed in range(40):
        generator = np.random.default_rng(100 + seed)
        rows = np.concatenate([generator.choice(np.flatnonzero(labels == c), 150, replace=False) for c in (0, 1)])
        curve = ls.specialty(ls.Representations.from_arrays([x[rows]], labels[rows]), ci=0.9, null=0)
        hits += curve.low[0] <= truth <= curve.high[0]
    assert 0.7 <= hits / 40 <= 1.0


@pytest.fixture
def words():
    generator = np.random.default_rng(0)
    names = ["file", "list", "value", "return", "object", "string", "and", "the", "of", "in"]
    labels = generator.integers(0, 3, 150)
    texts = [" ".join([*generator.choice(names[3:], size=generator.integers(1, 7)), names[k]]) for k in labels]
    frame = pandas.DataFrame({"text": texts, "label": labels})
    return ls.task({"train": frame[:100], "validation": frame[100:]})


def test_permuted_labels_have_weights_of_their_own():
    """With unbalanced classes nu of permuted labels is that of the plain formula, not one with the true weights."""
    x, labels = class_rows(300, 6, (0.9, 0.1))
    reps = ls.Representations.from_arrays([x, x * 2], labels)
    curve = ls.specialty(reps, null=20, seed=3)
    exchanged = permuted_labels(labels, np.arange(300), 20, 3)
    np.testing.assert_allclose(curve.permuted[:, 1], [plain_nu(x, each) for each in exchanged], rtol=1e-4)
    assert curve.null[1] == pytest.approx(np.median(curve.permuted[:, 1]))
    np.testing.assert_allclose(curve.ratio, curve.values / curve.null)
    assert curve.p == pytest.approx(1 / 21)
    assert curve.p_best == pytest.approx(1 / 21)
    assert set(curve.frame) >= {"null", "ratio", "p"}
    without = ls.specialty(reps, null=0)
    assert without.null is None
    assert math.isnan(without.p_best)
    assert "null" not in without.frame


def test_press_stands_beside_nu(tmp_path):
    x, labels = class_rows(300, 6, (0.6, 0.4))
    noise = np.random.default_rng(0).normal(size=x.shape)
    reps = ls.Representations.from_arrays([x, x + 4 * noise, x + 2 * noise], labels)
    curve = ls.specialty(reps, ci=0.95)
    assert list(curve.frame)[-5:] == ["press", "press_low", "press_high", "press_null", "press_p"]
    assert curve.press.best == curve.best == 2
    scored = ls.layer_scores(reps, ["press"])["press"]
    np.testing.assert_allclose(curve.press.values, scored.values)
    np.testing.assert_allclose(curve.press.low, scored.low)
    assert [figure.y_name for figure in curve.figures()] == ["nu", "press"]
    assert any("The labels show in layer" in finding.text for finding in curve.findings())
    assert "across widths or numbers of rows" in curve.figures()[0].caveat
    plain = ls.specialty(reps, ci=0.95, press=False)
    assert plain.press is None
    assert "press" not in plain.frame
    assert len(plain.figures()) == 1
    few = ls.Representations.from_arrays([x[:3]], [0, 1, 0])
    with pytest.warns(LayerscopeWarning):
        assert ls.specialty(few, null=0).press is None
    assert curve.save(tmp_path / "nu.parquet").is_file()


def test_shuffled_labels_show_in_no_layer():
    """A layer of many directions has the least nu whatever the labels are: its ratio to the null is still 1."""
    generator = np.random.default_rng(0)
    wide, narrow = generator.normal(size=(400, 32)), generator.normal(size=(400, 32)) * np.eye(32)[0] + 0.01
    layers = [wide, wide + generator.normal(size=wide.shape), narrow + 0.1 * generator.normal(size=wide.shape)]
    below = 0
    for seed in range(20):
        labels = np.random.default_rng(seed).permutation(np.arange(400) % 2)
        curve = ls.specialty(ls.Representations.from_arrays(layers, labels), null=39)
        assert curve.best == 1
        below += curve.p_best < 0.05
    assert below <= 3


def test_words_of_a_text_are_halved_and_permuted_together():
    """Words that share what their text is like: intervals are as wide as nu really varies, and nothing shows."""

    def drawn(seed, texts=40, words=10):
        generator = np.random.default_rng(seed)
        text = np.repeat(np.arange(texts), words)
        labels = generator.permutation(np.arange(texts) % 2)
        x = generator.normal(size=(texts, 4))[text] + 0.3 * generator.normal(size=(texts * words, 4))
        x[:, 0] += 1.5 * labels[text]
        rows = Rows("t", "train", "", text, None, np.tile(np.arange(words), texts), "word")
        reps = ls.Representations.from_arrays([x], labels[text], rows=rows)
        random = generator.permutation(labels)[text]
        return reps, reps.with_labels(random)

    many = [drawn(seed) for seed in range(30)]
    real = 1.96 * np.std([ls.specialty(reps, null=0).values[0] for reps, _ in many], ddof=1)
    curves = [ls.specialty(reps, ci=0.95, null=0) for reps, _ in many[:15]]
    half = np.median([(curve.high - curve.low)[0] / 2 for curve in curves])
    assert 0.6 < half / real < 1.7  # rows drawn one by one give a third of it
    p = [ls.specialty(random, null=19).p[0] for _, random in many]
    assert np.mean(np.asarray(p) <= 0.1) < 0.3
    assert np.median([ls.specialty(reps, null=19).p[0] for reps, _ in many[:9]]) == 0.05


@pytest.mark.parametrize("weighting", ["class", "rows"])
def test_a_pass_that_keeps_no_row_permutes_alike(weighting, words, monkeypatch):
    model = ls.load(random_network("bert", "encoder"), tokenizer=word_tokenizer())
    examples = words.split("train")
    how = {"weighting": weighting, "null": 20, "seed": 1}
    kept = ls.specialty(model, examples, **how)
    monkeypatch.setattr(score_curves, "_Rows", None)
    monkeypatch.setattr(specialty, "rows_fit", lambda *_: False)
    summed = ls.specialty(model, examples, **how)
    stored = ls.specialty(ls.extract(model, examples, pool="mean"), weighting=weighting, null=20, seed=1)
    for other in (kept, summed):
        np.testing.assert_allclose(other.values, stored.values, rtol=1e-3)
        np.testing.assert_allclose(other.permuted, stored.permuted, rtol=1e-3)
        assert other.p_best == pytest.approx(stored.p_best)
    np.testing.assert_allclose(kept.press.values, stored.press.values, rtol=1e-3)
    np.testing.assert_allclose(summed.press.values, stored.press.values, atol=0.03)  # a tenth of the texts left out
    assert stored.press.provenance["settings"]["form"] == "each text left out in turn, exactly"
    assert summed.press.provenance["settings"]["form"].startswith("one of 10 groups of texts left out at a time")


def test_words_stream_as_they_are_stored(words):
    model = ls.load(random_network("bert", "encoder"), tokenizer=word_tokenizer())
    curve = ls.specialty(model, words, pool="words", null=0)
    stored = ls.specialty(ls.extract(model, words, split="train", pool="words"), null=0)
    np.testing.assert_allclose(curve.values, stored.values, rtol=1e-6)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_named(bad):
    x, labels = class_rows(60, 5, (0.5, 0.5))
    broken = x.copy()
    broken[17, 2] = bad
    for measure in (ls.specialty, ls.label_cca, ls.mutual_information, ls.numerical_rank, ls.nuclear_norm):
        with pytest.raises(InputError, match=r"Layer 1 has an? (NaN|infinity) in row 17"):
            measure(ls.Representations.from_arrays([x, broken], labels))


def test_intervals_of_nu_do_not_go_below_0():
    labels = np.arange(12) % 2
    rows = np.random.default_rng(0).normal(size=(12, 3)) + 20 * labels[:, None]
    curve = ls.specialty(ls.Representations.from_arrays([rows, rows], labels), ci=0.9999999)
    assert (curve.low == 0).all()
    assert (curve.high > curve.values).all()


def test_whole_numbers_of_numpy_are_whole_numbers(tmp_path):
    model, frame = save_random(tmp_path, "bert"), pandas.DataFrame({"text": list("abcdefgh"), "label": [0, 1] * 4})
    plain = keys_of(lambda: ls.extract(model, frame, limit=6, max_length=8, layers=[1, 2]))
    options = {"limit": np.int64(6), "max_length": np.int64(8), "layers": np.arange(1, 3)}
    assert keys_of(lambda: ls.extract(model, frame, **options)) == plain
    assert ls.extract(model, frame, **options).layers == [1, 2]
    curve = ls.specialty(model, frame, limit=np.int64(6), max_length=np.int64(8), null=np.int64(20))
    curve.save(tmp_path / "nu.parquet")
    with pytest.raises(InputError, match=r"limit is 2\.5"):
        ls.extract(model, frame, limit=2.5)
