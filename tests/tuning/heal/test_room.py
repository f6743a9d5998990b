"""A healing that a GPU has no room for is refused before anything is trained."""

import pytest
import torch

from layerscope.errors import InputError
from layerscope.models.load import Model
from layerscope.tuning.heal import _check_room
from layerscope.tuning.hyperparameters import Hyperparameters
from layerscope.tuning.methods.finetune import Finetune
from layerscope.tuning.methods.lora import Lora
from tests.helpers.models import language_model


@pytest.mark.parametrize("method", [Lora(16, everywhere=True), Finetune()], ids=lambda method: method.name)
def test_what_would_take_less_is_named(method, monkeypatch):
    model, free = language_model(), 0.0
    monkeypatch.setattr(Model, "device", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, free))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 0)
    with pytest.raises(InputError, match=r"Training .* has 0 GB free; checkpointing=True .* a smaller batch"):
        _check_room(model, method, Hyperparameters(batch=16, max_length=64))
    with pytest.raises(InputError, match=r"has 0 GB free; a smaller batch"):
        _check_room(model, method, Hyperparameters(batch=16, max_length=64, checkpointing=True))
    free = 1e12
    _check_room(model, method, Hyperparameters(batch=16, max_length=64))
