"""What networks share: the linear start, early stops, many side by side as one after another."""

import numpy as np
import pytest

import layerscope as ls
from layerscope.alignment.aligner import with_option
from tests.helpers.data import relative_error

NETWORKS = with_option("start")


@pytest.mark.parametrize("method", NETWORKS)
def test_a_linear_start_is_the_linear_solution_before_training(method):
    error, aligner = relative_error("linear", method, start="linear", steps=1, learning_rate=1e-12)
    assert error < 1e-4
    assert aligner.report_["start"] == "linear"


@pytest.mark.parametrize("method", NETWORKS)
def test_a_linear_start_does_not_overfit_what_stops_it(method):
    """Rows of noise, hardly more than features: the start has learned nothing, and no held-out row says otherwise."""
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(100, 80)), generator.normal(size=(100, 80))
    new = generator.normal(size=(300, 80)), generator.normal(size=(300, 80))
    aligner = ls.align(x, y, method=method, start="linear", steps=100)
    assert aligner.error(*new)["relative"] < 1.2
    assert aligner.report_["held_out"] > 0.7


@pytest.mark.parametrize("method", NETWORKS)
def test_where_nothing_is_gained_the_linear_map_is_the_result(method):
    """A linear truth with much noise and few rows: whatever a network learns beside the map is noise."""
    generator = np.random.default_rng(3)
    x = generator.normal(size=(150, 12))
    y = x @ generator.normal(size=(12, 12)) + 3 * generator.normal(size=(150, 12))
    linear, network = (
        ls.align(x, y, method=name, **given) for name, given in (("linear", {}), (method, {"steps": 75}))
    )
    assert network.report_["steps"] == 0
    np.testing.assert_allclose(network(x), linear(x), atol=2e-2)


@pytest.mark.parametrize("method", NETWORKS)
def test_what_the_linear_map_leaves_is_learned(method):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(700, 4))
    y = x + 0.8 * np.tanh(2 * x[:, ::-1])
    linear = ls.align(x[:500], y[:500])
    network = ls.align(x[:500], y[:500], method=method, steps=150, batch=128)
    errors = [aligner.error(x[500:], y[500:])["relative"] for aligner in (linear, network)]
    assert errors[1] < 0.8 * errors[0]
    assert network.report_["steps"] > 0
    assert network.report_["start"] == "linear"


def test_held_out_texts_are_whole_and_said_in_the_report():
    generator = np.random.default_rng(0)
    x, texts = generator.normal(size=(200, 4)), np.repeat(np.arange(10), 20)
    report = ls.align(x, x**3, method="mlp", steps=25, texts=texts).report_
    assert report["held_out_rows"] == 40  # two of ten texts


@pytest.mark.slow
def test_between_seeds_the_invertible_network_is_not_worse_than_the_linear_map():
    """docs/results/alignment.py has all 32 cases; these two were worse by a quarter without the linear start."""
    sides = {
        (seed, split): ls.extract(
            f"garden:bert-s{seed}", "pydocs", split=split, pool="mean", layers=[6], limit=900, max_length=48
        )
        for seed in (0, 1)
        for split in ("train", "validation")
    }
    for source, target in ((0, 1), (1, 0)):
        x, y = (sides[seed, "train"][6] for seed in (source, target))
        scored = [sides[seed, "validation"][6] for seed in (source, target)]
        linear, inn = (ls.align(x, y, method=method).error(*scored)["relative"] for method in ("linear", "inn"))
        assert inn <= 1.01 * linear
