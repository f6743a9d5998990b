"""Evaluation of taggers: a class for every word, read at its first sub-word."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from layerscope.data import Examples
from layerscope.errors import DataError, InputError
from layerscope.evaluation.label_order import outputs_of
from layerscope.evaluation.token_evaluator import COUNT, LOSS, RIGHT, TokenEvaluator
from layerscope.extraction.encoding import encode
from layerscope.extraction.items import Item
from layerscope.extraction.pooling import Reading
from layerscope.models import Model


class TaggingEvaluator(TokenEvaluator):
    """Scores the share of words with the right tag, without those that are cut off. A row is a text."""

    key: ClassVar[str] = "Tags"
    score_kind: ClassVar[str] = "tags"
    scores: ClassVar[tuple[str, ...]] = ("accuracy", "nll")

    def __post_init__(self) -> None:
        if self.examples.tags is None or self.examples.words is None:
            raise DataError(
                f"{self.examples.task} ({self.examples.split}) has no tags, so nothing can be scored; name the columns "
                "that hold a list of tags (tags=, --tags) and a list of words."
            )
        self.outputs = outputs_of(self.model, self.task)
        self._kept_tags: list[np.ndarray] | None = None
        super().__post_init__()

    def _reading(self, longest: int) -> Reading:
        return Reading("words", subword="first", max_length=longest)

    def _settings(self) -> dict[str, Any]:
        return {"outputs": self.outputs.tolist()}

    def _encoded(self, model: Model, examples: Examples, reading: Reading) -> list[Item]:
        items = list(encode(model, replace(examples, pairs=None), reading))
        assert examples.tags is not None
        for item, tags in zip(items, examples.tags, strict=True):
            item.targets = self.outputs[tags[item.unit]]
        if not any(len(item.take) for item in items):
            raise InputError(f"No word of {examples.task} ({examples.split}) is within {reading.max_length} tokens.")
        return items

    def _metrics_of_sums(self, sums: np.ndarray, size: float) -> dict[str, float]:
        if not sums[COUNT]:
            return {**dict.fromkeys(self.scores, math.nan), "words": 0.0}
        right, nll = float(sums[RIGHT] / sums[COUNT]), float(sums[LOSS] / sums[COUNT])
        return {"accuracy": right, "nll": nll, "words": float(sums[COUNT])}

    def _majority(self, rows: np.ndarray) -> float:
        """Return the share of the most frequent tag among the words that are scored."""
        if self.metric != "accuracy":
            return math.nan
        tags = np.concatenate([self._scored_tags[row] for row in rows])
        return float(np.bincount(tags).max() / len(tags)) if len(tags) else math.nan

    @property
    def _scored_tags(self) -> list[np.ndarray]:
        """The tags of each row's words without those that are cut off; made once, as every score needs them."""
        if self._kept_tags is None:
            assert self.examples.tags is not None
            items = self._encoded(self.subject, self.examples, self.reading)
            self._kept_tags = [tags[item.unit] for item, tags in zip(items, self.examples.tags, strict=True)]
        return self._kept_tags
