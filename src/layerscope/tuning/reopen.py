"""Reopens what `tune` saved where that is not a standard checkpoint: the base model with its adapters."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from layerscope.errors import LayerscopeError, ModelError
from layerscope.models import Model, load
from layerscope.models.fingerprint import fingerprint
from layerscope.models.lineage import LEARNED
from layerscope.tuning.method import method_of
from layerscope.tuning.strategy import Strategy
from layerscope.tuning.training_job import prepared, read_result


def open_adapter(folder: Path, **options: Any) -> Model:
    """Return the model that a training in a folder gave; `options` are those of `load`, for its base."""
    result = read_result(folder)
    base = result.get("base")
    method = method_of(result["method"]["name"], result["method"]["size"])
    if base is None or result["head"] is None:
        raise ModelError(f"{folder} was written by an earlier layerscope, which did not note its base; tune again.")
    opened = _base(folder, f"what {method.name} tuning adds to {base['name']}", base, options)
    head: Any = SimpleNamespace(**{**result["head"], "head_order": None})
    if head.label_names is not None:
        head.label_names = tuple(head.label_names)
    strategy = Strategy.parse(result["strategy"]).resolve(opened.depth)
    tuned = method.reopen(prepared(opened, head, strategy, int(result["seed"])), folder)
    setattr(tuned.network, LEARNED, list(result["learned"]))
    return tuned


def _base(folder: Path, what: str, base: dict[str, Any], options: dict[str, Any]) -> Model:
    """Return the base model in the float type that is asked for; raise ModelError if its weights are others now."""
    try:
        opened = load(base["name"], **options)
        trained_type = base.get("dtype", "torch.float32").removeprefix("torch.")
        same_type = str(opened.network.dtype) == f"torch.{trained_type}"
        weights = fingerprint(opened if same_type else load(base["name"], **{**options, "dtype": trained_type}))
    except LayerscopeError as error:
        raise ModelError(f"{folder} holds {what}, which cannot be opened here: {error}") from error
    if weights != base["weights"]:
        raise ModelError(
            f"{folder} holds {what}, whose weights are others now; put back those that it was trained with, or tune "
            "again."
        )
    return opened
