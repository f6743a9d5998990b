"""The greedy search for blocks that can go: the one that hurts least, again and again."""

from __future__ import annotations

import numpy as np

from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.sweep import sweep
from layerscope.data import metrics
from layerscope.evaluation.sitting import Sitting


class Greedy:
    """Take out the block whose loss hurts least, again and again; only the rows that pick are looked at."""

    def __init__(self, sitting: Sitting, rows: np.ndarray, evaluations: int) -> None:
        self._exam, self._rows, self._left = sitting, rows, evaluations

    def run(self, known: dict[LayerPlan, np.ndarray]) -> list[tuple[LayerPlan, np.ndarray]]:
        """The plans of the greedy path that are not known yet, with their logits."""
        depth = self._exam.model.depth
        current, path = LayerPlan(range(1, depth + 1)), []
        while len(current.keep) > 1:
            nexts = [LayerPlan([b for b in current.keep if b != gone]) for gone in current.keep]
            new = [plan for plan in nexts if plan not in known]
            if len(new) > self._left:
                break
            if new:
                self._left -= len(new)
                parts = sweep(self._exam, new, f"greedy search at {len(current.keep) - 1} blocks")
                known.update(zip(new, parts, strict=True))
            current = max(nexts, key=lambda plan: self._worth(known[plan]))
            if current in new:
                path.append((current, known[current]))
        return path

    def _worth(self, answers: np.ndarray) -> float:
        """The score on the rows that pick, turned so that more is better."""
        return metrics.upward(self._exam.metric, self._exam.value(answers, self._rows))
