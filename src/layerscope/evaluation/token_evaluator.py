"""Evaluation of heads that answer token by token, at chosen positions: language models, masked ones, taggers.

The body runs as a whole. The head then sees the states of the positions that count, a portion at a time, so that memory
does not grow with the vocabulary times the batch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from layerscope.errors import ModelError
from layerscope.evaluation.evaluator import Evaluator, Read
from layerscope.extraction.items import Items
from layerscope.models import Model
from layerscope.models.architecture import evaluating
from layerscope.models.heads import output_count
from layerscope.models.replay import answering_with, caches_off
from layerscope.models.selfcheck import close, probe_inputs, without_head
from layerscope.resampling import effective_count

_NUMBERS = {"cpu": 1 << 23, "cuda": 1 << 27}  # logits that are made at once
_ROUNDS = 1000  # of the bootstrap
_DRAWN = 1 << 23  # counts that are drawn at once
_AT, _WANTED, _OWNER = "scored_at", "scored_tokens", "scored_texts"  # where, what is wanted there, and in which text
LOSS, RIGHT, COUNT = range(3)  # what is kept of a row: summed loss in nats, right answers, places


class TokenHead:
    """A network's own head, applied to chosen states; whether it may be applied so is checked on the network."""

    def __init__(self, model: Model) -> None:
        self.model = model
        self._check()

    def _check(self) -> None:
        """Raise ModelError unless the head gives the network's own logits when it sees a few states at a time."""
        network, model = self.model.network, self.model
        inputs = probe_inputs(model, rows=1)
        with torch.inference_mode(), evaluating(network), caches_off(network):
            expected = _logits(network(**inputs))[0]
            output = network.base_model(**inputs)
            got = torch.cat([logits for _, logits in self.portions(output, output.last_hidden_state[0], at_once=3)])
        if not close(got, expected):
            raise ModelError(
                f"The head of {model.name} ({type(network).__name__}) does not answer place by place, so it cannot be "
                "asked at some places only; score it with lm-evaluation-harness or a loop of your own instead."
            )

    def portions(self, output: Any, states: Tensor, at_once: int | None = None) -> Iterator[tuple[slice, Tensor]]:
        """Yield, for (places, width) states of the body, a slice of the places and their logits (some, outputs)."""
        size = at_once or max(1, _NUMBERS.get(states.device.type, 1 << 25) // self.outputs)
        for start in range(0, len(states), size):
            part = slice(start, min(start + size, len(states)))
            yield part, self.logits(output, states[part])

    @property
    def outputs(self) -> int:
        """How many numbers the head gives for a place."""
        return max(output_count(self.model), 1)

    def logits(self, output: Any, states: Tensor) -> Tensor:
        """Return (places, outputs) by the network's own forward, whose body answers with one text of these states."""
        network = self.model.network
        ids = torch.zeros(1, len(states), dtype=torch.long, device=states.device)
        answer = type(output)(**{**output, "last_hidden_state": states[None]})
        with answering_with(self._body, answer):
            return _logits(network(input_ids=ids, attention_mask=torch.ones_like(ids)))[0]

    @cached_property
    def _body(self) -> Any:
        """The module from which the head takes its states: the base model, or, as in OPT, a part of it."""
        network = self.model.network
        base, calls = network.base_model, []
        inner = [base, *(child for child in base.children() if hasattr(child, "get_input_embeddings"))]
        hooks = [module.register_forward_hook(lambda m, *_: calls.append(m)) for module in inner]
        try:
            with torch.inference_mode(), evaluating(network), caches_off(network):
                network(**probe_inputs(self.model, rows=1))
        finally:
            for hook in hooks:
                hook.remove()
        return base if base in calls else calls[-1]


def _logits(result: Any) -> Tensor:
    """Return the logits of a network's output, under the name that they have there."""
    logits: Tensor = result.prediction_logits if hasattr(result, "prediction_logits") else result.logits
    return logits


class TokenEvaluator(Evaluator):
    """Sums the loss, the right answers and the scored places of each row, which is a text or a window."""

    undefined: ClassVar[str] = "no token of the texts is scored"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._head = TokenHead(self.model)

    @property
    def subject(self) -> Model:
        return without_head(self.model)

    def _more(self, items: Items) -> dict[str, np.ndarray]:
        assert items.targets is not None
        return {_AT: items.take, _WANTED: items.targets, _OWNER: items.owner}

    def _reader(self, items: Items, inputs: dict[str, Tensor], more: dict[str, Tensor]) -> Read:
        at, wanted, owner = more[_AT], more[_WANTED], more[_OWNER]
        device = self.model.device

        def read(output: Any) -> Tensor:
            states = output.last_hidden_state
            chosen = states[owner.to(states.device), at.to(states.device)]
            sums = torch.zeros(len(items), 3, device=device)
            for part, logits in self._head.portions(output, chosen):
                marks = counted(logits, wanted[part].to(logits.device))  # a spread network ends on another device
                sums.index_add_(0, owner[part], marks.to(device))
            return sums

        return read

    def interval(self, answers: np.ndarray, rows: Any = None) -> tuple[float, float]:
        at = self._at(rows)
        sums = np.column_stack([answers[at], self._bytes(at)])
        metric = self.metric
        return bootstrap_of_sums(
            sums, self.units(at), lambda s: self._metrics_of_sums(s[:-1], s[-1])[metric], overlap=self.rows_overlap
        )

    def _bytes(self, rows: np.ndarray) -> np.ndarray:
        """Return (rows,) how many bytes of text the scored tokens of each row stand for."""
        return np.zeros(len(rows))

    def measured(self, answers: np.ndarray, rows: np.ndarray) -> dict[str, float]:
        return self._metrics_of_sums(answers[rows].astype(float).sum(axis=0), float(self._bytes(rows).sum()))

    def _metrics_of_sums(self, sums: np.ndarray, size: float) -> dict[str, float]:
        """Return every metric of summed numbers; `size` is in bytes."""
        raise NotImplementedError

    def losses(self, answers: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the mean loss of each text among some rows, and how many scored places it has."""
        sums = summed(answers[rows], self.units(rows))
        kept = sums[:, COUNT] > 0
        return sums[kept, LOSS] / sums[kept, COUNT], sums[kept, COUNT]


def summed(values: np.ndarray, texts: np.ndarray) -> np.ndarray:
    """Return (texts, numbers) sums of the (rows, numbers) of each text."""
    names, place = np.unique(texts, return_inverse=True)
    sums = np.zeros((len(names), values.shape[-1]))
    np.add.at(sums, place.reshape(-1), values.astype(float))
    return sums


def bootstrap_of_sums(
    values: np.ndarray, texts: np.ndarray, metric: Callable[[np.ndarray], float], *, overlap: bool = False
) -> tuple[float, float]:
    """Return a 95% interval of a metric of summed (rows, numbers), by the bootstrap over texts; NaN for one text.

    Its ends are expanded percentiles (Hesterberg 2015): those of draws of a few texts lie too close together, the more
    so the less equal texts are. They are as wide as the jackknife and Student's distribution ask, where texts of
    unequal numbers of rows count as fewer. `overlap` says that the rows of a text may reach into the next one, so that
    neighbours are alike: their covariance, where it is positive, counts as well (Newey & West 1987).
    """
    from scipy.special import ndtr, stdtrit

    sums = summed(values, texts)
    if len(sums) < 2:  # one text alone cannot be resampled
        return math.nan, math.nan
    generator, draws = np.random.default_rng(0), list[float]()
    at_once = max(1, _DRAWN // len(sums))
    for start in range(0, _ROUNDS, at_once):  # in portions, so that memory does not grow with the rounds
        drawn = generator.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), min(at_once, _ROUNDS - start))
        draws += [metric(total) for total in drawn @ sums]
    without = np.asarray([metric(rest) for rest in sums.sum(axis=0) - sums])
    apart = without - without.mean()
    square = float((apart**2).sum())
    if overlap:
        square += 2 * max(float((apart[1:] * apart[:-1]).sum()), 0.0)
    wider, spread = (len(sums) - 1) / len(sums) * square, float(np.var(draws))
    # A score that does not vary, or is infinite in some draws, leaves nothing to compare.
    factor = wider / spread if spread > 0 and math.isfinite(wider / spread) else 1.0
    count = max(effective_count(np.unique(texts, return_counts=True)[1]), 2.0)
    edge = float(ndtr(-math.sqrt(max(factor, 1.0)) * stdtrit(count - 1, 0.975)))
    low, high = np.nanquantile(np.asarray(draws), [edge, 1 - edge])
    return float(low), float(high)


def counted(logits: Tensor, targets: Tensor) -> Tensor:
    """Return (places, 3): the loss at each place in nats, whether the answer is right, and a one."""
    values = logits.float()
    loss = values.logsumexp(dim=-1) - values.gather(-1, targets[:, None])[:, 0]
    right = (values.argmax(dim=-1) == targets).float()
    return torch.stack([loss, right, torch.ones_like(loss)], dim=-1)
