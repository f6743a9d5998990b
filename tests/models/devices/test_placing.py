"""Devices and float types by name, and what is too large for one GPU."""

import shutil
from pathlib import Path

import pytest
import torch
import transformers

from layerscope import LayerPlan, load, truncate
from layerscope.cutting.cut import check_in_place
from layerscope.errors import InputError, ModelError, device_fault
from layerscope.models.devices import (
    check_room,
    default_device,
    device_faults_told,
    device_of,
    float_type_of,
    is_spread,
    weights_in_memory,
)
from tests.helpers.models import random_network, save_random


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


@pytest.mark.parametrize(
    ("gpu", "host", "outcome"),
    [(10**9, 10**9, "silent"), (1000, 10**9, "warned"), (1000, 1000, "refused"), (0, 1000, "refused")],
)
def test_a_model_is_never_offloaded_without_a_word(gpu, host, outcome, tmp_path, monkeypatch, caplog):
    save_random(tmp_path, "bert")
    monkeypatch.setattr("layerscope.models.devices.free_memory", lambda: host)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (gpu, gpu))
    if outcome == "refused":
        with pytest.raises(InputError, match=r"takes 0\.0 GB in float32, and .* free, so it is not opened; in 16 bits"):
            check_room("model", tmp_path, torch.float32, gpu > 0)
    else:
        check_room("model", tmp_path, torch.float32, True)
    assert ("the rest waits on the host or the disk" in caplog.text) == (outcome == "warned")


def test_only_the_files_that_are_opened_take_room(tmp_path):
    folder = Path(save_random(tmp_path, "bert"))
    alone = weights_in_memory(folder, torch.float32)
    shutil.copy(folder / "model.safetensors", folder / "consolidated.safetensors")
    assert weights_in_memory(folder, torch.float32) == alone


def test_opening_asks_for_room_first(tmp_path, monkeypatch):
    folder = save_random(tmp_path, "bert")
    monkeypatch.setattr("layerscope.models.devices.free_memory", lambda: 1000)
    with pytest.raises(InputError, match="so it is not opened"):
        load(folder)


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."), "memory ran out"),
        (
            RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 9"),
            "memory ran out",
        ),
        (MemoryError(), "memory ran out"),
        (RuntimeError("CUDA error: device-side assert triggered"), "the device failed"),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), None),
        (ValueError("out of memory"), None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_memory_and_devices_refuse_is_told_from_other_errors(error, told):
    fault = device_fault(error)
    assert fault is None if told is None else fault.startswith(told)
    with pytest.raises(type(error) if told is None else InputError), device_faults_told("Cutting x", "free memory"):
        raise error


def test_memory_that_runs_out_while_opening_is_a_sentence(tmp_path, monkeypatch):
    folder = save_random(tmp_path, "bert")

    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory.")

    monkeypatch.setattr(transformers.BertForSequenceClassification, "from_pretrained", full)
    with pytest.raises(InputError, match=r"Opening .* was not possible: memory ran out .*; open it in 16 bits"):
        load(folder)


@pytest.mark.parametrize("words", ["CUDA out of memory.", "CUDA error: unspecified launch failure"])
def test_a_cut_that_a_device_refuses_is_not_the_architectures_fault(words, monkeypatch):
    network = random_network("qwen2", "next")
    model = load(network)

    def refused(*_, **__):
        raise RuntimeError(words)

    with monkeypatch.context() as patch:
        patch.setattr("layerscope.cutting.cut.give_tensors", refused)
        with pytest.raises(InputError, match=r"Cutting .* in memory was not possible") as caught:
            truncate(model, 2)
        assert not isinstance(caught.value, ModelError)
    monkeypatch.setattr(type(network), "forward", refused)
    with pytest.raises(InputError, match=r"Running .* was not possible") as caught:
        check_in_place(model, LayerPlan([1, 2]))
    assert not isinstance(caught.value, ModelError)
    with pytest.raises(InputError, match=r"Opening .* was not possible") as caught:
        load(network)
    assert "self-check" not in str(caught.value)
