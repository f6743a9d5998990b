"""What combines the rooms below: localization, blocks, truncation curve, skip map, advice."""

from layerscope.analysis.advice import Advice, advise
from layerscope.analysis.alignment import alignment_study, alignment_table
from layerscope.analysis.alignment_figures import plot_alignment, plot_injection
from layerscope.analysis.blocks import Blocks, blocks
from layerscope.analysis.choosing import Choice, choose
from layerscope.analysis.curves import Curve
from layerscope.analysis.cut_figures import plot_skip_map, plot_truncation
from layerscope.analysis.cuts import skip_map, truncation_curve
from layerscope.analysis.injection import injection_study
from layerscope.analysis.label_measures import label_cca, mutual_information, nuclear_norm, numerical_rank
from layerscope.analysis.localization import localization
from layerscope.analysis.probes import agreement, probe
from layerscope.analysis.robustness import imbalance, plot_robustness, scarcity, specialty_study
from layerscope.analysis.specialty import smoothness, specialty
from layerscope.analysis.studies import plot_strategies, strategies, strategy_study
from layerscope.analysis.synthetic import synthetic_study
from layerscope.analysis.training_costs import training_cost
from layerscope.analysis.tuning import Run, Runs, copy_run, tune

__all__ = [
    "Advice",
    "Blocks",
    "Choice",
    "Curve",
    "Run",
    "Runs",
    "advise",
    "agreement",
    "alignment_study",
    "alignment_table",
    "blocks",
    "choose",
    "copy_run",
    "imbalance",
    "injection_study",
    "label_cca",
    "localization",
    "mutual_information",
    "nuclear_norm",
    "numerical_rank",
    "plot_alignment",
    "plot_injection",
    "plot_robustness",
    "plot_skip_map",
    "plot_strategies",
    "plot_truncation",
    "probe",
    "scarcity",
    "skip_map",
    "smoothness",
    "specialty",
    "specialty_study",
    "strategies",
    "strategy_study",
    "synthetic_study",
    "training_cost",
    "truncation_curve",
    "tune",
]
