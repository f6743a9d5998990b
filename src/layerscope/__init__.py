"""layerscope: look into the layers of transformer language models, and act on what is seen."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from layerscope.errors import LayerscopeError
from layerscope.version import __version__

if TYPE_CHECKING:
    from layerscope.analysis import (
        Advice,
        Blocks,
        Choice,
        Curve,
        Run,
        Runs,
        advise,
        agreement,
        blocks,
        choose,
        copy_run,
        imbalance,
        label_cca,
        localization,
        mutual_information,
        nuclear_norm,
        numerical_rank,
        plot_robustness,
        plot_skip_map,
        plot_strategies,
        plot_truncation,
        probe,
        scarcity,
        skip_map,
        smoothness,
        specialty,
        strategies,
        strategy_study,
        training_cost,
        truncation_curve,
        tune,
    )
    from layerscope.data import Task, task, tasks
    from layerscope.extract import Attentions, Representations, attentions, evaluate, extract, stream
    from layerscope.measures import Moments, Similarity, compare, compare_weights, measure, measures, panels
    from layerscope.models import Model, Replay, families, load
    from layerscope.surgery import LayerPlan, cut, save, skip, truncate
    from layerscope.tuning import Strategy


# Each name's home: imported when it is first used, so that `import layerscope` and --help cost nothing.
_HOMES = {
    "Advice": "analysis",
    "Attentions": "extract",
    "Blocks": "analysis",
    "Choice": "analysis",
    "Curve": "analysis",
    "LayerPlan": "surgery",
    "Model": "models",
    "Moments": "measures",
    "Replay": "models",
    "Representations": "extract",
    "Run": "analysis",
    "Runs": "analysis",
    "Similarity": "measures",
    "Strategy": "tuning",
    "Task": "data",
    "advise": "analysis",
    "agreement": "analysis",
    "attentions": "extract",
    "blocks": "analysis",
    "choose": "analysis",
    "compare": "measures",
    "compare_weights": "measures",
    "copy_run": "analysis",
    "cut": "surgery",
    "evaluate": "extract",
    "extract": "extract",
    "families": "models",
    "imbalance": "analysis",
    "label_cca": "analysis",
    "load": "models",
    "localization": "analysis",
    "measure": "measures",
    "measures": "measures",
    "mutual_information": "analysis",
    "nuclear_norm": "analysis",
    "numerical_rank": "analysis",
    "panels": "measures",
    "plot_robustness": "analysis",
    "plot_skip_map": "analysis",
    "plot_strategies": "analysis",
    "plot_truncation": "analysis",
    "probe": "analysis",
    "save": "surgery",
    "scarcity": "analysis",
    "skip": "surgery",
    "skip_map": "analysis",
    "smoothness": "analysis",
    "specialty": "analysis",
    "strategies": "analysis",
    "strategy_study": "analysis",
    "stream": "extract",
    "task": "data",
    "tasks": "data",
    "training_cost": "analysis",
    "truncate": "surgery",
    "truncation_curve": "analysis",
    "tune": "analysis",
}

__all__ = [
    "Advice",
    "Attentions",
    "Blocks",
    "Choice",
    "Curve",
    "LayerPlan",
    "LayerscopeError",
    "Model",
    "Moments",
    "Replay",
    "Representations",
    "Run",
    "Runs",
    "Similarity",
    "Strategy",
    "Task",
    "__version__",
    "advise",
    "agreement",
    "attentions",
    "blocks",
    "choose",
    "compare",
    "compare_weights",
    "copy_run",
    "cut",
    "evaluate",
    "extract",
    "families",
    "imbalance",
    "label_cca",
    "load",
    "localization",
    "measure",
    "measures",
    "mutual_information",
    "nuclear_norm",
    "numerical_rank",
    "panels",
    "plot_robustness",
    "plot_skip_map",
    "plot_strategies",
    "plot_truncation",
    "probe",
    "save",
    "scarcity",
    "skip",
    "skip_map",
    "smoothness",
    "specialty",
    "strategies",
    "strategy_study",
    "stream",
    "task",
    "tasks",
    "training_cost",
    "truncate",
    "truncation_curve",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'layerscope' has no attribute {name!r}")
    value = getattr(import_module(f"layerscope.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


class _Api(ModuleType):
    """`ls.extract` is the function, also after something has imported the room `layerscope.extract`."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Api
