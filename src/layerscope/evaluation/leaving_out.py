"""Scores without each of some groups of texts: what intervals of differences on the same texts are made of.

Every exam of the same texts deals them out to the same groups, so two scores that leave out the same group leave out
the same texts, and whatever is made of several scores has its interval by the jackknife, text for text.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from layerscope.data.resampling import folds
from layerscope.evaluation.sitting import Sitting

GROUPS = 20


def groups_of(texts: np.ndarray, count: int = GROUPS) -> np.ndarray:
    """The group (0, 1, ..) of every row: whole texts, as many in each; as many groups as texts where there are few."""
    return folds(texts, min(count, len(np.unique(texts))), seed=0)


def without_groups(sitting: Sitting, answers: Sequence[np.ndarray] | np.ndarray) -> np.ndarray:
    """(groups, answers) the metric of each of several (n, numbers) answers without each group of texts in turn."""
    group = groups_of(sitting.texts)
    rows = [np.flatnonzero(group != g) for g in range(group.max() + 1)]
    return np.asarray([[sitting.value(part, at) for part in answers] for at in rows], dtype=float)
