"""From results to figures: for each kind of result, what is drawn of it and what is said beside it."""

from layerscope.report.pictures.alignment import alignment, injection
from layerscope.report.pictures.cuts import advice, cut_model, score, skip_map, truncation
from layerscope.report.pictures.layers import curve, similarity, summary
from layerscope.report.pictures.tuning import choice, strategies, study, tuned

__all__ = [
    "advice",
    "alignment",
    "choice",
    "curve",
    "cut_model",
    "injection",
    "score",
    "similarity",
    "skip_map",
    "strategies",
    "study",
    "summary",
    "truncation",
    "tuned",
]
