"""layerscope: look into the layers of transformer language models, and act on what is seen."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from layerscope.errors import LayerscopeError
from layerscope.version import __version__

if TYPE_CHECKING:
    from layerscope.alignment.aligner import Aligner
    from layerscope.alignment.aligning import align, load_aligner
    from layerscope.alignment.injecting import Injection, inject
    from layerscope.alignment.injection_study import injection_study
    from layerscope.alignment.studies import alignment_study
    from layerscope.alignment.synthetic import synthetic_study
    from layerscope.cutting.advice import advise
    from layerscope.cutting.advice_results import Advice
    from layerscope.cutting.curve_results import SkipMap, Truncation
    from layerscope.cutting.curves import skip_map, truncation_curve
    from layerscope.cutting.cutting import cut, skip, truncate
    from layerscope.cutting.folders import cut_folder
    from layerscope.cutting.plan import LayerPlan
    from layerscope.cutting.publishing import push
    from layerscope.cutting.saving import save
    from layerscope.data import Task, task, tasks
    from layerscope.evaluation.exam import evaluate
    from layerscope.evaluation.score import Score
    from layerscope.extraction.attention import Attentions, attentions
    from layerscope.extraction.extracting import extract
    from layerscope.extraction.representations import Representations
    from layerscope.extraction.streaming import stream
    from layerscope.models import Model, Replay, families, load, wrap
    from layerscope.probing.agreeing import agreement
    from layerscope.probing.label_measures import label_cca, mutual_information, nuclear_norm, numerical_rank
    from layerscope.probing.probes import probe
    from layerscope.probing.robustness import imbalance, scarcity, specialty_study
    from layerscope.probing.variability import smoothness, specialty
    from layerscope.recipes.reproducing import reproduce
    from layerscope.recipes.reproduction import Reproduction
    from layerscope.reporting.page import report
    from layerscope.reporting.paper import figures
    from layerscope.results import Curve, Record, Result, read_record, write_record
    from layerscope.similarity.attention.weights import compare_weights
    from layerscope.similarity.comparing import compare
    from layerscope.similarity.influence import block_influence
    from layerscope.similarity.localizing import localization
    from layerscope.similarity.moments import Moments
    from layerscope.similarity.registry import measure, measures
    from layerscope.similarity.segmentation import Blocks, blocks
    from layerscope.similarity.similarity import Similarity, panels
    from layerscope.tuning.choosing import Choice, choose
    from layerscope.tuning.costs import strategies, training_cost
    from layerscope.tuning.healing import heal
    from layerscope.tuning.healing_results import Healing
    from layerscope.tuning.strategy import Strategy
    from layerscope.tuning.studies import strategy_study
    from layerscope.tuning.training import Training, Trainings
    from layerscope.tuning.tuning import tune


# Each name's home: imported when it is first used, so that `import layerscope` and --help cost nothing.
_HOMES = {
    "Advice": "cutting.advice_results",
    "Aligner": "alignment.aligner",
    "Attentions": "extraction.attention",
    "Blocks": "similarity.segmentation",
    "Choice": "tuning.choosing",
    "Curve": "results",
    "Healing": "tuning.healing_results",
    "Injection": "alignment.injecting",
    "LayerPlan": "cutting.plan",
    "Model": "models",
    "Moments": "similarity.moments",
    "Record": "results",
    "Replay": "models",
    "Representations": "extraction.representations",
    "Reproduction": "recipes.reproduction",
    "Result": "results",
    "Score": "evaluation.score",
    "Similarity": "similarity.similarity",
    "SkipMap": "cutting.curve_results",
    "Strategy": "tuning.strategy",
    "Task": "data",
    "Training": "tuning.training",
    "Trainings": "tuning.training",
    "Truncation": "cutting.curve_results",
    "advise": "cutting.advice",
    "agreement": "probing.agreeing",
    "align": "alignment.aligning",
    "alignment_study": "alignment.studies",
    "attentions": "extraction.attention",
    "block_influence": "similarity.influence",
    "blocks": "similarity.segmentation",
    "choose": "tuning.choosing",
    "compare": "similarity.comparing",
    "compare_weights": "similarity.attention.weights",
    "cut": "cutting.cutting",
    "cut_folder": "cutting.folders",
    "evaluate": "evaluation.exam",
    "extract": "extraction.extracting",
    "families": "models",
    "figures": "reporting.paper",
    "heal": "tuning.healing",
    "imbalance": "probing.robustness",
    "inject": "alignment.injecting",
    "injection_study": "alignment.injection_study",
    "label_cca": "probing.label_measures",
    "load": "models",
    "load_aligner": "alignment.aligning",
    "localization": "similarity.localizing",
    "measure": "similarity.registry",
    "measures": "similarity.registry",
    "mutual_information": "probing.label_measures",
    "nuclear_norm": "probing.label_measures",
    "numerical_rank": "probing.label_measures",
    "panels": "similarity.similarity",
    "probe": "probing.probes",
    "push": "cutting.publishing",
    "read_record": "results",
    "report": "reporting.page",
    "reproduce": "recipes.reproducing",
    "save": "cutting.saving",
    "scarcity": "probing.robustness",
    "skip": "cutting.cutting",
    "skip_map": "cutting.curves",
    "smoothness": "probing.variability",
    "specialty": "probing.variability",
    "specialty_study": "probing.robustness",
    "strategies": "tuning.costs",
    "strategy_study": "tuning.studies",
    "stream": "extraction.streaming",
    "synthetic_study": "alignment.synthetic",
    "task": "data",
    "tasks": "data",
    "training_cost": "tuning.costs",
    "truncate": "cutting.cutting",
    "truncation_curve": "cutting.curves",
    "tune": "tuning.tuning",
    "wrap": "models",
    "write_record": "results",
}

__all__ = [
    "Advice",
    "Aligner",
    "Attentions",
    "Blocks",
    "Choice",
    "Curve",
    "Healing",
    "Injection",
    "LayerPlan",
    "LayerscopeError",
    "Model",
    "Moments",
    "Record",
    "Replay",
    "Representations",
    "Reproduction",
    "Result",
    "Score",
    "Similarity",
    "SkipMap",
    "Strategy",
    "Task",
    "Training",
    "Trainings",
    "Truncation",
    "__version__",
    "advise",
    "agreement",
    "align",
    "alignment_study",
    "attentions",
    "block_influence",
    "blocks",
    "choose",
    "compare",
    "compare_weights",
    "cut",
    "cut_folder",
    "evaluate",
    "extract",
    "families",
    "figures",
    "heal",
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
    "probe",
    "push",
    "read_record",
    "report",
    "reproduce",
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
    "wrap",
    "write_record",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'layerscope' has no attribute {name!r}")
    value = getattr(import_module(f"layerscope.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
