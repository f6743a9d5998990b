"""Checkpoints are written beside the training: of the weights as they were, each file whole, errors told."""

import threading

import pytest
import torch
from safetensors.torch import load_file

from layerscope.errors import LayerscopeError
from layerscope.tuning.checkpoint_writer import CheckpointWriter, _save_weights


def test_what_is_written_is_what_was_there_and_nothing_waits(tmp_path):
    writer, free = CheckpointWriter(), threading.Event()
    weights = {"a": torch.arange(4.0), "b": {"c": [torch.ones(2), 3]}}

    def slow(value, path):
        assert free.wait(10)
        torch.save(value, path)

    writer.write(tmp_path / "first.pt", weights, slow)
    weights["a"].zero_()  # the next step, long before the file is there
    writer.write(tmp_path / "second.pt", weights, torch.save)
    assert not list(tmp_path.glob("*.pt"))
    free.set()
    writer.finish()
    first, second = (torch.load(tmp_path / f"{name}.pt", weights_only=True) for name in ("first", "second"))
    assert first["a"].tolist() == [0, 1, 2, 3]
    assert second["a"].tolist() == [0, 0, 0, 0]
    assert first["b"]["c"][1] == 3
    writer.close()


def test_an_error_in_writing_is_raised_where_it_is_waited_for(tmp_path):
    writer = CheckpointWriter()

    def broken(value, path):
        raise OSError("the disk is full")

    writer.write(tmp_path / "weights", {"a": torch.ones(1)}, broken)
    with pytest.raises((OSError, LayerscopeError), match="disk is full"):
        writer.finish()
    assert not (tmp_path / "weights").exists()
    writer.close()


@pytest.mark.gpu
def test_a_copy_on_the_device_is_of_the_moment(tmp_path):
    writer, weights = CheckpointWriter(), {"a": torch.full((1 << 20,), 1.0, device="cuda")}
    for number in range(20):
        weights["a"].fill_(float(number))
        writer.write(tmp_path / f"{number}", weights, _save_weights)
        weights["a"].fill_(-1.0)
    writer.finish()
    for number in range(20):
        assert (load_file(tmp_path / f"{number}")["a"] == number).all()
    writer.close()
