"""Estimated time of runs on this machine, before anything runs: counted multiply-adds over a measured speed.

The estimate is only as good as a first look needs: training costs three forward passes per text, and fits of networks
(INN, MLP) go by a fixed number of multiply-adds. What the store has already takes no time, which is not looked up here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any

from layerscope.cutting.costs import Costs
from layerscope.cutting.plan import LayerPlan
from layerscope.data.load import task as open_task
from layerscope.errors import LayerscopeError
from layerscope.models.devices import device_of
from layerscope.models.load import load
from layerscope.recipes.experiment_run import RANDOM, ExperimentRun
from layerscope.recipes.recipe import Call

_EFFICIENCY = 0.3  # of the speed of one large product: batches are ragged, and not all is products
_FIXED = 2.0  # seconds of opening, reading and drawing for a call
_TOKENS = 64  # of a text, where nothing else is said
_FIT = {"inn": 3e11, "mlp": 1e11}  # multiply-adds of a fit to one layer
_LAYERS = {"injection_study": 1, "synthetic_study": 18}  # maps per method: the top layer's; of every truth and repeat
_USUAL_STRATEGIES, _USUAL_RATES = 18, 4  # of Xie et al.'s preset
_BACKWARD = 3  # forward passes that a step of training costs
_SHARED = ("tune",)  # calls whose results several experiments take from the store
_GROUPS = 1.5  # what intervals add to a comparison


def seconds_of(cells: Iterable[ExperimentRun]) -> float:
    """Return about how long some runs take where nothing of them is in the store; shared trainings count once."""
    total, seen = 0.0, set()
    for cell in cells:
        values = cell.values()
        values |= {call.name: _Result() for call in cell.experiment.calls}
        for call in cell.experiment.calls:
            made = call.made(values, dict)
            if call.each:
                values[call.name] = [_Result() for _ in made]
            for given in made if call.each else [made]:
                shared = f"{call.call} {given}" if call.call in _SHARED else ""
                total += _FIXED if shared in seen else _seconds(call, cell, given)
                seen |= {shared} - {""}
    return total


class _Result:
    """A placeholder for the result of a call: every attribute and every entry of it is again one."""

    __iter__ = None

    def __getattr__(self, name: str) -> _Result:
        return self

    def __getitem__(self, name: Any) -> _Result:
        return self


def _seconds(call: Call, cell: ExperimentRun, given: Mapping[str, Any]) -> float:
    """Return about how long a call takes with these arguments."""
    sources = [source for value in given.values() for source in _sources(value)]
    known_models = {model.source for model in cell.profile.models.values()}
    models = [s for s in sources if isinstance(s, str) and s.removeprefix(RANDOM) in known_models]
    models = models or [model.source for model in _models(cell)]
    forward = sum(map(macs_per_token, models)) / len(models)
    tokens = given.get("max_length", _TOKENS)
    texts = _TEXTS.get(call.call, _nothing)(given, len(models))
    layers = len(given["layers"]) if given.get("layers") else _LAYERS.get(call.call, 12)
    methods = [str(method).split()[0] for method in given.get("methods") or ()]
    fits = sum(_FIT.get(method, 0.0) for method in methods) * layers * _pairs(given, len(models))
    return _FIXED + (texts * tokens * forward + fits) / (_EFFICIENCY * speed(cell.device))


def _pairs(given: Mapping[str, Any], models: int) -> int:
    """Return between how many pairs of models maps are fitted."""
    asked = given.get("pairs", 1)
    return models * (models - 1) // 2 if asked == "all" else int(asked)


def _sources(value: Any) -> list[Any]:
    """Return the parts of a value that may be a list of lists."""
    return [part for each in value for part in _sources(each)] if isinstance(value, (list, tuple)) else [value]


def _models(cell: ExperimentRun) -> list[Any]:
    """Return the models of the combination, or all of the profile."""
    names = [part for value in cell.chosen.values() for part in _sources(value)]
    chosen = [cell.profile.models[name] for name in names if name in cell.profile.models]
    return chosen or list(cell.profile.models.values())


@cache
def macs_per_token(source: str) -> float:
    """Return the multiply-adds of a token; those of a small model where it cannot be opened."""
    try:
        model = load(source.removeprefix(RANDOM), device="cpu")  # it is only counted
        work = Costs(model)
        return float(work.macs(LayerPlan.truncated(model.depth, model.depth))) / work.tokens
    except LayerscopeError:
        return 85e6  # of twelve blocks of width 768


@cache
def speed(device: str | None = None) -> float:
    """Return the multiply-adds per second of a product on the device that models run on."""
    import torch

    place = device_of(device)
    size = 512 if place.type == "cpu" else 4096
    x = torch.randn(size, size, device=place)
    float((x @ x)[0, 0])
    start, rounds = time.perf_counter(), 0
    while time.perf_counter() - start < 0.1:
        float((x @ x)[0, 0])
        rounds += 1
    return rounds * size**3 / (time.perf_counter() - start)


@cache
def _rows(task: str, split: str | None) -> int:
    """Return the count of rows in the split of a task; 1,000 where it cannot be opened."""
    try:
        opened = open_task(task)
        return len(opened.split(split if split in opened.splits else None))
    except LayerscopeError:
        return 1000


def _least(given: Mapping[str, Any], split: str | None, limit: str) -> int:
    """Return how many rows of the task in some arguments are used: all of the split, or the limit if it is less."""
    task = given.get("task")
    return min(_rows(task, split) if isinstance(task, str) else 1000, given.get(limit) or 1_000_000)


def _nothing(given: Mapping[str, Any], models: int) -> float:
    return 0


def _tuned(given: Mapping[str, Any], models: int) -> float:
    """Return how many texts run forward in a training, with the backward passes counted as forward ones."""
    rows = _least(given, "train", "train_limit")
    preset = {"phang2021": (4, 10_000, 1), "wu2020": (8, None, 3), "xie2022": (8, None, 20)}.get(
        given.get("preset", "")
    )
    batch, steps, epochs = preset or (16, None, 3)
    steps = given.get("max_steps", steps)
    epochs = given.get("epochs", epochs)
    learned = rows * epochs if steps is None else steps * given.get("batch", batch)
    scored = _least(given, "validation", "validation_limit") * (epochs if steps is None else 1)
    return float(_BACKWARD * learned + scored)


def _studied(given: Mapping[str, Any], models: int) -> float:
    trainings = len(given.get("strategies") or range(_USUAL_STRATEGIES)) * len(given.get("methods") or [0])
    rates = _USUAL_RATES if given.get("preset") == "xie2022" else 1
    return trainings * rates * len(given.get("seeds") or [0]) * _tuned(given, models)


def _compared(given: Mapping[str, Any], models: int) -> float:
    return max(models, 2) * _least(given, "validation", "limit") * (_GROUPS if given.get("ci") else 1)


def _skipped(given: Mapping[str, Any], models: int) -> float:
    # Every span runs the blocks above it again.
    return _least(given, "validation", "limit") * 2.0 * (given.get("max_span") or 12)


def _truncated(given: Mapping[str, Any], models: int) -> float:
    heads = 0 if given.get("mode", "untuned") == "untuned" else _least(given, "train", "train_limit")
    return _least(given, "validation", "limit") + heads


def _tried(given: Mapping[str, Any], models: int) -> float:
    # The measures themselves are not counted: what they take hangs on which they are.
    sources = given["models"].values() if isinstance(given["models"], Mapping) else [given["models"]]
    return sum(len(part) for part in sources) * _least(given, "validation", "limit")


def _aligned(given: Mapping[str, Any], models: int) -> float:
    return models * (given.get("train", 1600) + given.get("test", 1600))


_TEXTS: dict[str, Callable[[Mapping[str, Any], int], float]] = {
    "tune": _tuned,
    "strategy_study": _studied,
    "compare": _compared,
    "localization": _compared,
    "skip_map": _skipped,
    "truncation_curve": _truncated,
    "extract": lambda given, models: _least(given, given.get("split"), "limit"),
    "alignment_study": _aligned,
    "measure_trial": _tried,
    "injection_study": lambda given, models: 2 * (given.get("train", 1600) + _least(given, "validation", "limit")),
}
