"""The one loop: windows, batches of like cost, and memory that runs out."""

import functools

import pytest
import torch
from quick import model as model_of

import layerscope as ls
from layerscope.errors import InputError


def test_out_of_memory_halves_the_batch_and_goes_on(task, monkeypatch, caplog):
    model = model_of("bert")
    expected = ls.extract(model, task, store=False)
    sizes = []
    original = model.network.forward

    @functools.wraps(original)
    def scarce(input_ids, **kwargs):
        sizes.append(input_ids.numel())
        if input_ids.numel() > 90:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(input_ids=input_ids, **kwargs)

    monkeypatch.setattr(model.network, "forward", scarce)
    reps = ls.extract(model, task, store=False)
    assert max(sizes) > 90
    assert "going on with" in caplog.text
    for layer in reps.layers:
        torch.testing.assert_close(reps[layer], expected[layer], rtol=1e-4, atol=1e-5)

    monkeypatch.setattr(model.network, "forward", lambda **_: (_ for _ in ()).throw(torch.OutOfMemoryError("no")))
    with pytest.raises(InputError, match=r"single text of .* tokens does not fit"):
        ls.extract(model, task, store=False)


def test_other_runtime_errors_are_not_taken_for_memory(task, monkeypatch):
    model = model_of("bert")
    monkeypatch.setattr(
        model.network.embeddings, "forward", lambda *a, **k: (_ for _ in ()).throw(RuntimeError("boom"))
    )
    with pytest.raises(RuntimeError, match="boom"):
        ls.extract(model, task, store=False)
