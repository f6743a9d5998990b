"""Checkpoints of a training that is under way, written while it goes on: no step waits for a disk."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from layerscope.distributed import Team
from layerscope.store import whole_file

WEIGHTS, OPTIMIZER, SCHEDULER = "model.safetensors", "optimizer.pt", "scheduler.pt"  # as the Trainer calls them
PARTS = (WEIGHTS, OPTIMIZER, SCHEDULER)  # without all of which a checkpoint is not whole
_BESIDE = 0.1  # of a GPU's free memory: so much a copy may take that waits there until it is written


class CheckpointWriter:
    """Writes files in the order in which they are given, in a thread of its own; each appears when it is whole."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "checkpoints")
        self._pending: list[Future[None]] = []

    def write(self, path: Path, value: Any, save: Callable[[Any, Path], None]) -> None:
        """Take a copy of the tensors in `value` as they are now, and let `save(copy, path)` write it later."""
        tensors = list(_tensors(value))
        device = next((tensor.device for tensor in tensors if tensor.device.type == "cuda"), None)
        stays = True
        if device is not None:
            size = sum(tensor.nbytes for tensor in tensors if tensor.device.type == "cuda")
            stays = size <= _BESIDE * torch.cuda.mem_get_info(device)[0]
        # On the device a copy takes microseconds, and its way to the host runs beside the steps that follow.
        copied = _mapped(value, lambda tensor: tensor.detach().clone() if stays else tensor.detach().cpu())
        made = None
        if device is not None:
            made = torch.cuda.Event()
            made.record(torch.cuda.current_stream(device))
        self._pending.append(self._pool.submit(_write, path, copied, save, device, made))

    def finish(self) -> None:
        """Wait until everything is written; an error in writing is raised here."""
        pending, self._pending = self._pending, []
        for future in pending:
            future.result()

    def close(self) -> None:
        """Wait for what is being written, whatever comes of it, and end the thread."""
        self._pool.shutdown()


def _write(path: Path, value: Any, save: Callable[[Any, Path], None], device: torch.device | None, made: Any) -> None:
    """Bring the tensors to the host, on a stream of their own where they are on a GPU, and write the file."""
    if device is not None:
        with torch.cuda.stream(torch.cuda.Stream(device)):
            made.synchronize()
            value = _mapped(value, Tensor.cpu)
    with whole_file(path) as temporary:
        save(value, temporary)


def _tensors(value: Any) -> Any:
    """Yield the tensors in nested dictionaries and lists."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (dict, list, tuple)):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _tensors(part)


def _mapped(value: Any, action: Callable[[Tensor], Tensor]) -> Any:
    """Return nested dictionaries and lists with every tensor replaced."""
    if isinstance(value, Tensor):
        return action(value)
    if isinstance(value, dict):
        return {name: _mapped(part, action) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_mapped(part, action) for part in value)
    return value


def _save_weights(tensors: dict[str, Tensor], path: Path) -> None:
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, metadata={"format": "pt"})


@cache
def trainer_class() -> Any:
    """Return transformers' Trainer with its checkpoints written by a `CheckpointWriter`, its `writer`."""
    from transformers import Trainer

    class BackgroundTrainer(Trainer):  # type: ignore[misc]
        writer: CheckpointWriter

        def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
            """Write the weights. One checkpoint is under way at a time, so that the one before it is whole."""
            self.writer.finish()
            folder = Path(output_dir or self.args.output_dir)
            folder.mkdir(parents=True, exist_ok=True)
            if self.args.should_save:
                weights = self.model.state_dict() if state_dict is None else state_dict
                self.writer.write(folder / WEIGHTS, weights, _save_weights)

        def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
            if self.args.should_save:
                self.writer.write(Path(output_dir) / OPTIMIZER, self.optimizer.state_dict(), torch.save)
                self.writer.write(Path(output_dir) / SCHEDULER, self.lr_scheduler.state_dict(), torch.save)

        def _load_best_model(self) -> None:
            self.writer.finish()
            Team.current().barrier()  # the main process writes, and all of them read
            super()._load_best_model()

    return BackgroundTrainer
