"""Frozen blocks: not run where their output is known, and quiet where they are run."""

import pytest
import torch
from quick import QUICK, model

import layerscope as ls


@pytest.mark.parametrize("method", ["finetune", "adapter", "lora"])
@pytest.mark.parametrize("family", ["bert", "xlnet", "gpt2", "deberta", "modernbert"])
def test_the_cache_changes_nothing(family, method, task):
    options = {"strategy": "(3, 4, 4)", "method": method, **QUICK}
    base = model(family)
    cached, plain = (ls.tune(base, task, cache=cache, **options) for cache in (True, False))
    assert cached.cached
    assert not plain.cached
    assert [e["score"] for e in cached.epochs] == [e["score"] for e in plain.epochs]
    one, two = (dict(training.model.named_parameters()) for training in (cached, plain))
    for name, value in one.items():
        torch.testing.assert_close(value, two[name], rtol=1e-3, atol=1e-4)
