"""Devices and float types by name, and what is too large for one GPU."""

import pytest
import torch

from layerscope.errors import InputError
from layerscope.models.devices import default_device, device_of, float_type_of, is_spread
from tests.helpers.models import save_random


def test_a_name_stands_for_a_device():
    assert device_of("cpu") == device_of(torch.device("cpu")) == torch.device("cpu")
    assert device_of(None) == device_of("auto") == default_device()
    with pytest.raises(InputError, match="The device 'gpu' cannot be used here; usable: cpu"):
        device_of("gpu")


def test_a_name_stands_for_a_float_type():
    assert float_type_of("bfloat16") == float_type_of(torch.bfloat16) == torch.bfloat16
    for wrong in ("float12", "int64", torch.int8, "nn"):
        with pytest.raises(InputError, match="There is no float type"):
            float_type_of(wrong)


@pytest.mark.parametrize(
    ("device", "gpus", "free", "spread"),
    [
        (None, 0, 0, False),
        (None, 1, 10**9, False),
        (None, 1, 1000, True),  # too large: a part waits on the host
        (None, 2, 10**9, False),
        (None, 2, 1000, True),
        ("auto", 2, 10**9, True),
        ("auto", 1, 10**9, False),
        ("auto", 1, 1000, True),
        ("cpu", 2, 1000, False),
    ],
)
def test_what_is_too_large_for_one_gpuis_spread(device, gpus, free, spread, tmp_path, monkeypatch):
    save_random(tmp_path, "bert")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, free))
    assert is_spread(device, tmp_path, torch.float32) == spread
