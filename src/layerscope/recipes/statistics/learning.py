"""Whether a model learned its task: of one that did not, what cutting or comparing it shows says nothing."""

from __future__ import annotations

import math

import numpy as np

from layerscope import metrics
from layerscope.extraction.representations import Representations
from layerscope.results import Curve
from layerscope.tuning.training import Training

_SURE = 1.96  # standard errors


def unlearned(training: Training) -> str:
    """Why a training shows nothing, in words; nothing where it does.

    Its score must lie above that of always giving the most frequent class by more than chance over the scored texts;
    where labels are numbers, above a correlation of 0.
    """
    n, floor = len(training.job.training_data.validation), training.majority
    flat = math.isnan(floor) or floor <= 0  # of correlations
    chance = 1 / n if flat else floor * (1 - floor) / n
    least = (0.0 if flat else floor) + _SURE * math.sqrt(chance)
    if not metrics.higher_is_better(training.metric) or training.score > least:
        return ""
    beside = "0 is chance" if flat else f"always the most frequent class gives {floor:.3f}"
    return f"the tuned model has not learned the task ({training.metric} {training.score:.3f}, and {beside})"


def unread(probes: Curve, scored: Representations, layers: list[int]) -> str:
    """Why the scores of probes show nothing, in words: in none of some places do they surely beat chance."""
    floor = metrics.majority(probes.name, np.asarray(scored.labels), len(scored.label_names or ()))
    floor = 0.0 if math.isnan(floor) else floor
    if probes.low is None or (np.asarray(probes.low)[layers] > floor).any():
        return ""
    return f"probes of no layer surely beat always giving the most frequent class ({floor:.3f})"
