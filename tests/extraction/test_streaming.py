"""Streaming: every batch of several models goes to whoever wants it."""

import numpy as np
import pytest
import torch
from quick import model as model_of

import layerscope as ls
from layerscope.errors import DataError


def test_states_that_are_not_finite_are_refused_with_their_place(task):
    model = model_of("bert")
    with torch.no_grad():
        model.network.encoder.layer[1].output.dense.bias[3] = float("inf")
    with pytest.raises(DataError, match=r"Layer 2 .* is not finite for row"):
        ls.extract(model, task, store=False)


def test_several_models_stream_over_the_same_batches(task):
    models = [model_of("bert"), model_of("roberta")]
    seen = []

    class Listener:
        def update(self, batch):
            assert [len(states) for states in batch.states] == [5, 5]
            seen.append((batch.rows.row, batch.states[0][4].clone(), batch.states[1][4].clone()))

    tally = ls.stream(models, task.split(), Listener(), pool="mean", batch_tokens=60)
    assert tally.rows == 7
    assert len(seen) > 1
    order = np.argsort(np.concatenate([rows for rows, _, _ in seen]))
    for place, model in enumerate(models, start=1):
        got = torch.cat([part[place] for part in seen])[torch.from_numpy(order)]
        expected = ls.extract(model, task, pool="mean", store=False)[4]
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
