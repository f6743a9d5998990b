"""Every metric against scikit-learn, and intervals that cover."""

import math
import tracemalloc

import numpy as np
import pytest
from sklearn.metrics import f1_score, matthews_corrcoef

from layerscope import metrics


def test_metrics():
    generator = np.random.default_rng(0)
    labels, guesses = generator.integers(0, 2, 50), generator.integers(0, 2, 50)
    assert metrics.score("accuracy", labels, guesses) == (labels == guesses).mean()
    assert metrics.score("f1", labels, guesses) == pytest.approx(f1_score(labels, guesses))
    assert metrics.score("matthews", labels, guesses) == pytest.approx(matthews_corrcoef(labels, guesses))
    assert metrics.score("f1", labels + guesses, guesses) == pytest.approx(
        f1_score(labels + guesses, guesses, average="macro", zero_division=0)
    )
    common = max(np.bincount(labels)) / 50
    assert metrics.majority("accuracy", labels) == common
    assert metrics.majority("matthews", labels) == 0
    assert np.isnan(metrics.majority("pearson_spearman", labels / 3))


def test_f1_is_the_mean_over_classes_also_where_no_row_has_the_last_ones():
    labels, guesses = np.array([0, 0, 1, 1, 0]), np.array([0, 1, 1, 1, 0])
    mean = f1_score(labels, guesses, average="macro")
    assert metrics.score("f1", labels, guesses, classes=3) == pytest.approx(mean)
    assert metrics.score("f1", labels, guesses, classes=2) == pytest.approx(f1_score(labels, guesses))
    always = f1_score(labels, np.zeros(5, int), average="macro", zero_division=0)
    assert metrics.majority("f1", labels, classes=3) == pytest.approx(always)
    right = metrics.bootstrap("f1", np.zeros(20, int), np.arange(20) % 4 // 3, classes=3)
    assert right[0] > 0  # of class 1 alone it would be 0 in every draw


@pytest.mark.parametrize("metric", ["accuracy", "f1", "pearson_spearman"])
def test_bootstrap_intervals_cover(metric):
    hits = 0
    truth = {"accuracy": 0.8, "f1": 0.8, "pearson_spearman": None}[metric]
    for seed in range(60):
        generator = np.random.default_rng(seed)
        labels = generator.integers(0, 2, 150)
        guesses = np.where(generator.random(150) < 0.8, labels, 1 - labels)
        if metric == "pearson_spearman":
            noise = generator.normal(size=(2, 150))
            labels, guesses = noise[0], noise[0] + noise[1]
            truth = (2**-0.5 + 6 / np.pi * np.arcsin(2**-0.5 / 2)) / 2
        low, high = metrics.bootstrap(metric, labels, guesses, rounds=200, level=0.9, seed=seed)
        hits += low <= truth <= high
    assert 0.8 <= hits / 60 <= 0.99


def test_every_metric_knows_its_direction():
    assert [name for name in metrics.METRICS if not metrics.higher_is_better(name)] == [
        "perplexity",
        "nll",
        "bits_per_byte",
    ]
    assert metrics.upward("perplexity", 3.0) > metrics.upward("perplexity", 4.0)
    assert metrics.upward("accuracy", 0.9) > metrics.upward("accuracy", 0.8) > metrics.upward("accuracy", np.nan)


def test_correlations_are_scipys():
    from scipy.stats import pearsonr, spearmanr

    labels, guesses = np.random.default_rng(0).normal(size=(2, 50)).round(1)
    assert metrics.score("spearman", labels, guesses) == pytest.approx(spearmanr(labels, guesses)[0])
    assert metrics.score("pearson", labels, guesses) == pytest.approx(pearsonr(labels, guesses)[0])
    assert np.isnan(metrics.score("spearman", labels, np.zeros(50)))
    assert np.isnan(metrics.majority("spearman", labels))
    low, high = metrics.bootstrap("spearman", labels, guesses)
    assert low < metrics.score("spearman", labels, guesses) < high


@pytest.mark.parametrize("metric", ["pearson", "spearman", "pearson_spearman"])
def test_predictions_that_differ_by_rounding_have_no_correlation(metric):
    labels = np.arange(40) / 8
    rounded = np.float32(-0.0734) * (1 + 1e-7 * (np.arange(40) % 3).astype(np.float32))
    assert len(np.unique(rounded)) > 1
    assert np.isnan(metrics.score(metric, labels, rounded))
    assert metrics.score(metric, labels, 100 + 1e-3 * labels) == pytest.approx(1)


@pytest.mark.parametrize("metric", ["accuracy", "spearman"])
def test_one_text_has_no_interval(metric):
    assert all(map(math.isnan, metrics.bootstrap(metric, np.ones(1, int), np.ones(1, int))))


@pytest.mark.parametrize("right", [True, False])
def test_answers_that_are_all_right_have_an_interval_too(right):
    from scipy.stats import binomtest

    labels = np.arange(24) % 2
    exact = binomtest(24 * right, 24).proportion_ci(0.95, method="exact")
    answers = labels if right else 1 - labels
    assert metrics.bootstrap("accuracy", labels, answers) == pytest.approx((exact.low, exact.high))


@pytest.mark.parametrize("metric", ["f1", "matthews"])
@pytest.mark.parametrize("classes", [2, 3, 4])
def test_a_perfect_score_has_an_interval_below_it(metric, classes):
    labels = np.arange(60) % min(classes, 3)  # of four classes the last has no row
    low, high = metrics.bootstrap(metric, labels, labels, classes)
    share = 0.025 ** (1 / 60)  # right answers, as Clopper and Pearson have it

    def drawn(seed):
        generator, count = np.random.default_rng(seed), min(classes, 3)
        wrong = (np.tile(labels, 500) + generator.integers(1, count, 30000)) % count
        return np.tile(labels, 500), np.where(generator.random(30000) < share, np.tile(labels, 500), wrong)

    assert high == 1
    assert low == pytest.approx(metrics.score(metric, *drawn(0), classes), abs=0.01)
    assert low < 0.95


@pytest.mark.parametrize("metric", ["accuracy", "f1", "matthews"])
def test_the_interval_of_a_perfect_score_of_one_class_is_one(metric):
    low, high = metrics.bootstrap(metric, np.ones(30, int), np.ones(30, int), 2)
    assert 0 <= low <= high == metrics.score(metric, np.ones(30, int), np.ones(30, int), 2)


def test_every_score_lies_within_its_bounds():
    assert {name: metrics.bounds(name) for name in ("accuracy", "matthews", "spearman", "perplexity")} == {
        "accuracy": (0, 1),
        "matthews": (-1, 1),
        "spearman": (-1, 1),
        "perplexity": (0, math.inf),
    }
    right = np.array([0, 1, 0, 1])
    assert metrics.score("matthews", right, 1 - right) == metrics.bounds("matthews")[0]


def test_the_share_that_is_brought_back():
    assert metrics.recovered(0.8, 0.4, 0.6) == pytest.approx(0.5)
    assert math.isnan(metrics.recovered(0.8, 0.8, 0.9))
    nats = [metrics.in_nats("perplexity", value) for value in (math.e, math.e**3, math.e**2)]
    assert metrics.recovered(*nats) == pytest.approx(0.5)
    assert metrics.in_nats("accuracy", 0.5) == 0.5


@pytest.mark.parametrize("metric", ["accuracy", "f1", "matthews"])
def test_drawing_filled_cells_gives_what_drawing_all_cells_gives(metric):
    """The plain way: every cell of the confusion matrix is drawn, and each draw becomes answers that are scored."""
    generator = np.random.default_rng(1)
    labels, guesses = generator.integers(0, 4, 30), generator.integers(0, 3, 30)
    cells = np.bincount(labels * 5 + guesses, minlength=25)
    draws = np.random.default_rng(7).multinomial(30, cells / 30, size=50)
    scores = [
        metrics.score(metric, *(np.repeat(part, draw) for part in np.divmod(np.arange(25), 5)), 5) for draw in draws
    ]
    expected = np.quantile(scores, [0.025, 0.975])
    assert metrics.bootstrap(metric, labels, guesses, 5, rounds=50, seed=7) == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("metric", ["accuracy", "f1", "matthews"])
def test_memory_of_an_interval_grows_with_the_cells_that_are_filled(metric):
    labels = np.arange(10_000) % 5_000
    guesses = np.where(np.arange(10_000) % 3, labels, 4_999 - labels)
    tracemalloc.start()
    try:
        low, high = metrics.bootstrap(metric, labels, guesses, 5_000, rounds=400)
        assert tracemalloc.get_traced_memory()[1] < 400 << 20  # all cells of all draws would take 75 GiB
    finally:
        tracemalloc.stop()
    assert 0.5 < low < metrics.score(metric, labels, guesses, 5_000) + 0.02
    assert low < high < 0.75
