"""Evaluation of causal language models on choices: the likelihood of each choice after the text.

Prompts and metrics are those of lm-evaluation-harness. The prompt is the text (and, where the task has one, its
question after a space); what is scored are a space and the choice. `acc` takes the choice of the highest summed
log-likelihood, `acc_norm` divides it by the characters of the choice first. A prompt that is too long loses its
beginning. What a tokenizer puts after a text (EOS) is left out.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from layerscope import metrics
from layerscope.data import Examples
from layerscope.errors import InputError
from layerscope.evaluation.evaluator import Question
from layerscope.evaluation.lm_eval import LIKELIHOOD
from layerscope.evaluation.token_evaluator import LOSS, TokenEvaluator
from layerscope.extraction.items import Item
from layerscope.extraction.loop import Window
from layerscope.extraction.pooling import Reading
from layerscope.models import Model
from layerscope.models.load import quiet


class MultipleChoiceEvaluator(TokenEvaluator):
    """Scores the choices of the highest likelihood. A row is a text, its numbers the log-likelihoods of the choices."""

    key: ClassVar[str] = "Likelihood"
    score_kind: ClassVar[str] = LIKELIHOOD
    usual: ClassVar[int] = 2048
    scores: ClassVar[tuple[str, ...]] = ("acc", "acc_norm")
    not_healed: ClassVar[str] = (
        "has choices, and a language model is healed on running text; give that (kind='text', --kind text), and score "
        "the choices afterwards with layerscope evaluate."
    )

    def __post_init__(self) -> None:
        if self.examples.labels is None:
            raise InputError(
                f"{self.examples.task} ({self.examples.split}) does not say which choice is right, so nothing can be "
                "scored; name the column that does (label=, --label)."
            )
        super().__post_init__()

    @property
    def classes(self) -> np.ndarray | None:
        return self.examples.labels

    @property
    def labels(self) -> np.ndarray:
        assert self.examples.labels is not None
        return self.examples.labels

    def _provenance_settings(self) -> dict[str, Any]:
        return {"prompt": "the text (and its question), a space, the choice"}

    def _encoded(self, model: Model, examples: Examples, reading: Reading) -> list[Item]:
        assert examples.choices is not None
        tokenizer = model.require_tokenizer()
        items, whole, starts = [], [], []
        for k, choices in enumerate(_plain_choices(examples)):
            prompt = examples.texts[k] if examples.prompts is None else f"{examples.texts[k]} {examples.prompts[k]}"
            starts += [prompt.rstrip()] * len(choices)  # white space at its end goes to the choice
            whole += [f"{prompt} {choice}" for choice in choices]
        # How many tokens the tokenizer puts after every text, such as EOS: neither prompt nor choice ends with them.
        special = tokenizer("a", return_special_tokens_mask=True)["special_tokens_mask"]
        last = max((k for k, added in enumerate(special) if not added), default=len(special) - 1)
        closing = len(special) - 1 - last
        with quiet():  # about texts that are too long for the model: they lose their beginning below
            before = [len(ids) - closing for ids in tokenizer(starts)["input_ids"]]
            after = [ids[: len(ids) - closing] for ids in tokenizer(whole)["input_ids"]]
        for first, ids in zip(before, after, strict=True):
            items.append(_item(np.asarray(ids, dtype=np.int64), first, reading.max_length))
        return items

    def _per_text(self, numbers: Tensor, question: Question) -> Tensor:
        return -numbers[..., LOSS].unflatten(-1, (question.texts, -1))

    def _width(self, window: Window, width: int) -> int:
        assert window.examples.choices is not None
        return max(map(len, window.examples.choices))

    def predictions(self, answers: np.ndarray, metric: str | None = None) -> np.ndarray:
        """Return (.., n) the choice that the model takes."""
        if (metric or self.metric) == "acc":
            return answers.argmax(axis=-1)
        most = answers.shape[-1]
        lengths = [[len(c) for c in choices] + [1] * (most - len(choices)) for choices in _plain_choices(self.examples)]
        return (answers / np.asarray(lengths, dtype=float)).argmax(axis=-1)

    def measured(self, answers: np.ndarray, rows: np.ndarray) -> dict[str, float]:
        right = {name: self.predictions(answers, name)[rows] == self.labels[rows] for name in self.scores}
        return {name: float(values.mean()) for name, values in right.items()}

    def interval(self, answers: np.ndarray, rows: Any = None) -> tuple[float, float]:
        at = self._at(rows)
        return metrics.bootstrap("accuracy", self.labels[at], self.predictions(answers)[at])

    def _majority(self, rows: np.ndarray) -> float:
        return metrics.majority("accuracy", self.labels[rows])


def _plain_choices(examples: Examples) -> list[list[str]]:
    """Return the choices without the question that the task puts before each of them."""
    assert examples.choices is not None
    if examples.prompts is None:
        return [list(choices) for choices in examples.choices]
    pairs = zip(examples.choices, examples.prompts, strict=True)
    return [[choice.removeprefix(f"{prompt} ") for choice in choices] for choices, prompt in pairs]


def _item(ids: np.ndarray, first: int, longest: int) -> Item:
    """Return prompt and choice as one item, of which the choice's tokens are scored."""
    cut = max(0, len(ids) - 1 - longest)  # the last token is only predicted, never read
    ids, first = ids[cut:], max(first - cut, 1)
    take = np.arange(first - 1, len(ids) - 1)
    rest = np.zeros(len(take), np.int64)
    return Item(ids[:-1], None, take, rest, rest[:1], cut > 0, np.zeros(len(ids) - 1, bool), ids[take + 1])
