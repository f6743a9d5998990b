"""Evaluation of masked language models: a share of each text's tokens is masked, and the model has to find them."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from layerscope.data import Examples
from layerscope.errors import ModelError
from layerscope.evaluation.perplexity import perplexity
from layerscope.evaluation.token_evaluator import COUNT, LOSS, RIGHT, TokenEvaluator
from layerscope.extraction.encoding import encode
from layerscope.extraction.items import Item
from layerscope.extraction.pooling import Reading
from layerscope.models import Model

SHARE = 0.15  # of the tokens (Devlin et al. 2019); all of them become the mask token


class MaskedLMEvaluator(TokenEvaluator):
    """Scores the loss and the accuracy at the masked tokens. A row is a text."""

    key: ClassVar[str] = "Masked"
    score_kind: ClassVar[str] = "masked tokens"
    scores: ClassVar[tuple[str, ...]] = ("nll", "accuracy", "perplexity")

    def __post_init__(self) -> None:
        mask = self.model.require_tokenizer().mask_token_id
        if mask is None:
            raise ModelError(f"The tokenizer of {self.model.name} has no mask token, so no token can be masked.")
        self._mask = int(mask)
        super().__post_init__()

    def _settings(self) -> dict[str, Any]:
        return {"mask_seed": self.task.prompt_options.mask_seed, "share": SHARE}

    def _provenance_settings(self) -> dict[str, Any]:
        return {"masked": SHARE, "mask_seed": self.task.prompt_options.mask_seed}

    def _encoded(self, model: Model, examples: Examples, reading: Reading) -> list[Item]:
        items = encode(model, examples, reading)
        return [self._hidden(item, int(row)) for item, row in zip(items, examples.rows, strict=True)]

    def _hidden(self, item: Item, row: int) -> Item:
        """Return the item with a share of its tokens masked, the same ones whatever else is in the batch."""
        real = np.flatnonzero(~item.special)
        generator = np.random.default_rng([self.task.prompt_options.mask_seed, row])
        count = max(1, round(SHARE * len(real)))
        item.take = np.sort(generator.permutation(real)[:count])
        item.segment = np.zeros(len(item.take), np.int64)
        item.targets = item.ids[item.take]
        item.ids = item.ids.copy()
        item.ids[item.take] = self._mask
        return item

    def _metrics_of_sums(self, sums: np.ndarray, size: float) -> dict[str, float]:
        if not sums[COUNT]:
            return {**dict.fromkeys(self.scores, math.nan), "tokens": 0.0}
        nll, right = float(sums[LOSS] / sums[COUNT]), float(sums[RIGHT] / sums[COUNT])
        return {"nll": nll, "accuracy": right, "perplexity": perplexity(nll), "tokens": float(sums[COUNT])}
