"""layerscope: look into the layers of transformer language models, and act on what is seen."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from layerscope.errors import LayerscopeError
from layerscope.version import __version__

if TYPE_CHECKING:
    from layerscope.alignment import Aligner, align, load_aligner
    from layerscope.analysis import (
        Advice,
        Blocks,
        Choice,
        Curve,
        Run,
        Runs,
        advise,
        agreement,
        alignment_study,
        alignment_table,
        blocks,
        choose,
        copy_run,
        imbalance,
        injection_study,
        label_cca,
        localization,
        mutual_information,
        nuclear_norm,
        numerical_rank,
        plot_alignment,
        plot_injection,
        plot_robustness,
        plot_skip_map,
        plot_strategies,
        plot_truncation,
        probe,
        scarcity,
        skip_map,
        smoothness,
        specialty,
        specialty_study,
        strategies,
        strategy_study,
        synthetic_study,
        training_cost,
        truncation_curve,
        tune,
    )
    from layerscope.data import Task, task, tasks
    from layerscope.extract import Attentions, Representations, attentions, evaluate, extract, stream
    from layerscope.measures import Moments, Similarity, compare, compare_weights, measure, measures, panels
    from layerscope.models import Model, Replay, families, load
    from layerscope.report import RunRecord, figures, read_run, report, write_run
    from layerscope.surgery import Injection, LayerPlan, cut, inject, save, skip, truncate
    from layerscope.tuning import Strategy


# Each name's home: imported when it is first used, so that `import layerscope` and --help cost nothing.
_HOMES = {
    "Advice": "analysis",
    "Aligner": "alignment",
    "Attentions": "extract",
    "Blocks": "analysis",
    "Choice": "analysis",
    "Curve": "analysis",
    "Injection": "surgery",
    "LayerPlan": "surgery",
    "Model": "models",
    "Moments": "measures",
    "Replay": "models",
    "Representations": "extract",
    "Run": "analysis",
    "RunRecord": "report",
    "Runs": "analysis",
    "Similarity": "measures",
    "Strategy": "tuning",
    "Task": "data",
    "advise": "analysis",
    "agreement": "analysis",
    "align": "alignment",
    "alignment_study": "analysis",
    "alignment_table": "analysis",
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
    "figures": "report",
    "imbalance": "analysis",
    "inject": "surgery",
    "injection_study": "analysis",
    "label_cca": "analysis",
    "load": "models",
    "load_aligner": "alignment",
    "localization": "analysis",
    "measure": "measures",
    "measures": "measures",
    "mutual_information": "analysis",
    "nuclear_norm": "analysis",
    "numerical_rank": "analysis",
    "panels": "measures",
    "plot_alignment": "analysis",
    "plot_injection": "analysis",
    "plot_robustness": "analysis",
    "plot_skip_map": "analysis",
    "plot_strategies": "analysis",
    "plot_truncation": "analysis",
    "probe": "analysis",
    "read_run": "report",
    "report": "report",
    "save": "surgery",
    "scarcity": "analysis",
    "skip": "surgery",
    "skip_map": "analysis",
    "smoothness": "analysis",
    "specialty": "analysis",
    "specialty_study": "analysis",
    "strategies": "analysis",
    "strategy_study": "analysis",
    "stream": "extract",
    "synthetic_study": "analysis",
    "task": "data",
    "tasks": "data",
    "training_cost": "analysis",
    "truncate": "surgery",
    "truncation_curve": "analysis",
    "tune": "analysis",
    "write_run": "report",
}

__all__ = [
    "Advice",
    "Aligner",
    "Attentions",
    "Blocks",
    "Choice",
    "Curve",
    "Injection",
    "LayerPlan",
    "LayerscopeError",
    "Model",
    "Moments",
    "Replay",
    "Representations",
    "Run",
    "RunRecord",
    "Runs",
    "Similarity",
    "Strategy",
    "Task",
    "__version__",
    "advise",
    "agreement",
    "align",
    "alignment_study",
    "alignment_table",
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
    "figures",
    "imbalance",
    "inject",
    "injection_study",
    "label_cca",
    "load",
    "load_aligner",
    "localization",
    "measure",
    "measures",
    "mutual_information",
    "nuclear_norm",
    "numerical_rank",
    "panels",
    "plot_alignment",
    "plot_injection",
    "plot_robustness",
    "plot_skip_map",
    "plot_strategies",
    "plot_truncation",
    "probe",
    "read_run",
    "report",
    "save",
    "scarcity",
    "skip",
    "skip_map",
    "smoothness",
    "specialty",
    "specialty_study",
    "strategies",
    "strategy_study",
    "stream",
    "synthetic_study",
    "task",
    "tasks",
    "training_cost",
    "truncate",
    "truncation_curve",
    "tune",
    "write_run",
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
