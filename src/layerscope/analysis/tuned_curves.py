"""TUNED and TUNEDORIG truncation curves: a head trained on every frozen layer (Phang et al. 2021, figure 3)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from layerscope.data import Examples, Task
from layerscope.errors import InputError
from layerscope.extract import extract
from layerscope.extract.exam import Exam
from layerscope.extract.run import examples_of
from layerscope.models import Model
from layerscope.models.identity import fingerprint
from layerscope.store import Store, digest, write_json
from layerscope.tuning.heads import classifier_of
from layerscope.tuning.layer_heads import LayerHeads

VERSION = 1


def trained_heads(
    model: Model,
    task: Task,
    validation: Examples,
    *,
    new_head: bool,
    learning_rate: float,
    epochs: int,
    batch: int,
    max_length: int,
    train_limit: int | None,
    seed: int,
) -> np.ndarray:
    """The validation score of a head on every layer 0..L, all trained side by side on one stored pass."""
    train = examples_of(task, None, train_limit, learning=True)
    if train.split == validation.split:
        raise InputError(
            f"Heads are trained on one split of {task.name} and scored on another, and {train.split} was to serve for "
            "both; give a task with the splits train and validation, and no split= that is learned from."
        )
    spec = {
        "version": VERSION,
        "model": fingerprint(model),
        "task": task.name,
        "train": [train.fingerprint, digest(train.rows.tobytes())],
        "validation": [validation.fingerprint, digest(validation.rows.tobytes())],
        "new_head": new_head,
        "training": [learning_rate, epochs, batch, max_length, seed],
    }

    def build(folder: Path) -> None:
        tuned = classifier_of(model, task, seed, new_head=new_head)
        heads = LayerHeads(tuned, range(model.depth + 1))
        states = [_states(model, part, max_length) for part in (train, validation)]
        groups = tuple(_group(part) for part in (train, validation))
        exam = Exam(tuned, task, validation)
        assert train.labels is not None
        scores, history = heads.fit(
            states[0],
            train.labels,
            states[1],
            exam.score,
            learning_rate=learning_rate,
            epochs=epochs,
            batch=batch,
            seed=seed,
            groups=(groups[0], groups[1]),
            title=f"heads on {model.name}",
        )
        write_json(folder / "heads.json", {"scores": scores.tolist(), "history": history.tolist()})

    folder = Store().produce("heads", spec, build)
    return np.asarray(json.loads((folder / "heads.json").read_text(encoding="utf-8"))["scores"], dtype=float)


def _states(model: Model, part: Examples, max_length: int) -> torch.Tensor:
    """(layers, rows, width) of the summary token, on the model's device."""
    reps = extract(model, part, pool="cls", max_length=max_length)
    return torch.stack([reps[layer] for layer in reps.layers]).to(model.device)


def _group(part: Examples) -> int:
    """How many rows make up a text."""
    if part.choices is None:
        return 1
    counts = {len(c) for c in part.choices}
    if len(counts) > 1:
        raise InputError(
            f"{part.task} has from {min(counts)} to {max(counts)} choices a row; heads are trained on stored rows only "
            "where every text has as many."
        )
    return counts.pop()


def check_same(tuned: Model, base: Model) -> None:
    """TUNEDORIG needs the same architecture untuned."""
    if (tuned.anatomy.family, tuned.depth, tuned.width) != (base.anatomy.family, base.depth, base.width):
        raise InputError(f"base={base.name} is not the untuned {tuned.name}: its family, depth or width differ.")


def options_of(options: dict[str, Any]) -> dict[str, Any]:
    """The options of head training with their defaults (Xie et al. 2022, table 3 trains heads at 1e-3)."""
    known = {"learning_rate": 1e-3, "epochs": 10, "batch": 32, "train_limit": None, "seed": 0}
    for name in options:
        if name not in known:
            raise InputError(f"There is no option {name!r} here; heads are trained with {', '.join(known)}.")
    return known | options
