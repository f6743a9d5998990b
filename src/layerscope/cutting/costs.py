"""The cost of a plan: parameters, multiply-adds, and measured latency."""

from __future__ import annotations

import inspect
import math
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from layerscope.cutting.plan import LayerPlan
from layerscope.errors import PlanError
from layerscope.evaluation.evaluator import Evaluator, Read
from layerscope.models import Model, Replay
from layerscope.models.architecture import block_kinds, block_modules, evaluating, only_blocks
from layerscope.models.extras import parameter_count
from layerscope.models.heads import HEADS
from layerscope.models.replay import caches_off

_SECONDS, _ROUNDS = 0.5, 20
_READ = 256  # texts that are tokenised to judge the length of all
_SLOW = 2.0  # seconds of a batch from which on it is not run a second time
TOKENS = 128  # the length of text for which multiply-adds and latency are given


@dataclass(frozen=True)
class BatchTimes:
    """Seconds that a token takes in an ordinary batch of a task: in a recorded forward, in one block, in an answer."""

    forward: float
    block: float
    answer: float

    @classmethod
    def measured(cls, evaluator: Evaluator) -> BatchTimes:
        """Return the times of a batch of an evaluator's own texts, spread over all of them.

        The lesser of two runs counts, since the first on a device also prepares it, unless one takes seconds.
        """
        total = len(evaluator.examples)
        count = int(min(max(evaluator.ordinary_tokens * total // max(1, evaluator.tokens(_READ)), 1), total))
        texts = evaluator.examples.take(np.unique(np.linspace(0, total - 1, count).astype(np.int64)))
        times: list[np.ndarray] = []

        def timed(inputs: dict[str, torch.Tensor], read: Read) -> tuple[np.ndarray, torch.Tensor]:
            clock = [_now(evaluator.model)]
            replay = Replay(evaluator.subject, inputs)
            clock.append(_now(evaluator.model))
            if replay.depth:
                middle = (replay.depth + 1) // 2
                replay.run(replay.states[middle - 1], middle)
            clock.append(_now(evaluator.model))
            answer = read(replay.finish(replay.states[-1]))
            clock.append(_now(evaluator.model))
            return np.diff(clock), answer

        def act(inputs: dict[str, torch.Tensor], read: Read) -> torch.Tensor:
            took, answer = timed(inputs, read)
            if took.sum() < _SLOW:
                took = np.minimum(took, timed(inputs, read)[0])
            times.append(took)
            return answer

        evaluator.answers(texts, act, "measuring a batch")
        tokens = sum(map(len, evaluator.encoder(evaluator.subject, texts, evaluator.reading)))
        return cls(*(np.sum(times, axis=0) / max(1, tokens)).tolist())


def _now(model: Model) -> float:
    """Return the time at which a model's device has done what it was asked for."""
    if model.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter()


class _FlopCounter(TorchDispatchMode):
    """Adds up the floating point operations of matrix products, by torch's own formulas."""

    def __init__(self) -> None:
        super().__init__()
        self.flops = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if (formula := flop_registry.get(func._overloadpacket)) is not None:
            self.flops += int(formula(*args, **(kwargs or {}), out_val=result))
        return result


class Costs:
    """The cost of a model under any plan; each part of it is found once."""

    def __init__(self, model: Model, tokens: int = TOKENS) -> None:
        self.model = model
        self.tokens = min(tokens, model.positions or tokens)
        self._latency: dict[tuple[Any, ...], dict[int, float]] = {}

    def parameters(self, plan: LayerPlan) -> int:
        """Return how many parameters a model cut by the plan has; blocks that share weights count once."""
        network = self.model.network
        total = parameter_count(network)
        if self.model.architecture.shared:
            return total
        blocks = block_modules(network.base_model, self.model.architecture)
        gone = [blocks[b - 1] for b in plan.removed(self.model.depth)]
        return total - sum(p.numel() for block in gone for p in block.parameters())

    def least_parameters(self, gone: int) -> int:
        """Return the fewest parameters that are left when this many blocks go."""
        network = self.model.network
        total = parameter_count(network)
        if self.model.architecture.shared:
            return total
        sizes = [
            sum(p.numel() for p in block.parameters())
            for block in block_modules(network.base_model, self.model.architecture)
        ]
        return total - sum(sorted(sizes, reverse=True)[:gone])

    def macs(self, plan: LayerPlan) -> int:
        """Return the multiply-adds of one text of `tokens` tokens."""
        return self.around + sum(self._blocks[b - 1] for b in plan.keep)

    def timed_macs(self, plan: LayerPlan) -> int:
        """Return those multiply-adds that `latency` measures: a language model answers for the last token only."""
        return self.macs(plan) - (self.around if self._last_token_only else 0)

    @cached_property
    def _counted(self) -> tuple[int, list[int]]:
        """The multiply-adds of everything around the blocks, and of every block."""
        network = self.model.network
        was = network.config._attn_implementation
        if was != "eager":
            network.set_attn_implementation("eager")  # fused attention is not counted on every device
        try:
            with torch.no_grad(), evaluating(network):
                replay = Replay(self.model, self._inputs(1))
                blocks = []
                for block in range(1, replay.depth + 1):
                    with _FlopCounter() as counter:
                        replay.run(replay.states[block - 1], block)
                    blocks.append(counter.flops // 2)
                with _FlopCounter() as counter:
                    replay.finish(replay.states[-1])
                return counter.flops // 2, blocks
        finally:
            if was != "eager":
                network.set_attn_implementation(was)

    @property
    def around(self) -> int:
        """The multiply-adds of everything around the blocks, with those of the head."""
        return self._counted[0]

    @property
    def _blocks(self) -> list[int]:
        return self._counted[1]

    def measuring(self, plans: Sequence[LayerPlan], times: BatchTimes) -> float:
        """Return about how many seconds `latency` takes to measure these plans, with one text and with 32."""
        whole = LayerPlan(range(1, self.model.depth + 1))
        single = self.latency(whole, 1)
        many = 32 * self.tokens * times.forward if self.model.device.type == "cpu" else self.latency(whole, 32)
        kinds, seconds = block_kinds(self.model.network.config, self.model.architecture), 0.0
        for kept in {tuple(sorted(str(kinds[b - 1]) for b in plan.keep)) for plan in plans}:
            share = len(kept) / self.model.depth
            for one in (single * share, many * share):
                seconds += single * share + min(_ROUNDS * one, max(_SECONDS, one))
        return seconds

    def latency(self, plan: LayerPlan, batch: int) -> float:
        """Return the median seconds of one forward of `batch` texts, with the blocks really taken out.

        Plans that keep as many blocks of each kind take the same time and are measured once: a first forward to warm
        up, then forwards until half a second has passed. NaN where no config says which blocks are left.
        """
        kinds = block_kinds(self.model.network.config, self.model.architecture)
        measured = self._latency.setdefault(tuple(sorted(str(kinds[b - 1]) for b in plan.keep)), {})
        if batch not in measured:
            inputs = self._inputs(batch)
            network = self.model.network
            cut = only_blocks(network, self.model.architecture, plan.keep)
            times = [math.nan]
            off = caches_off(network)
            with suppress(PlanError), cut, self._some_padding_token(), torch.inference_mode(), evaluating(network), off:
                self._forward(network, {name: value[:1] for name, value in inputs.items()})
                times = [self._forward(network, inputs)]
                while sum(times) < _SECONDS and len(times) < _ROUNDS:
                    times.append(self._forward(network, inputs))
            measured[batch] = statistics.median(times)
        return measured[batch]

    @contextmanager
    def _some_padding_token(self) -> Iterator[None]:
        """Give the network a padding token within the block if it has none.

        Heads that look for a padding token refuse several texts without one; token 0 is in none of the timed texts.
        """
        config = self.model.network.config
        before = getattr(config, "pad_token_id", None)
        if self.model.pad_token is None:
            config.pad_token_id = 0
        try:
            yield
        finally:
            config.pad_token_id = before

    def _forward(self, network: Any, inputs: dict[str, torch.Tensor]) -> float:
        """Run one forward and return its seconds."""
        start = _now(self.model)
        network(**inputs, **self._last_token_only)
        return _now(self.model) - start

    @cached_property
    def _last_token_only(self) -> dict[str, int]:
        """The argument that makes a language model give the logits of the last token only, where it takes one.

        Those of all tokens would take a batch's memory times the vocabulary, and no prompt is answered by them.
        """
        network = self.model.network
        takes = "logits_to_keep" in inspect.signature(network.forward).parameters
        return {"logits_to_keep": 1} if HEADS[self.model.head].causal and takes else {}

    def _inputs(self, batch: int) -> dict[str, torch.Tensor]:
        """Return random tokens for so many texts, on the model's device."""
        generator = torch.Generator().manual_seed(0)
        most = self.model.vocabulary
        ids = torch.randint(most // 2, most, (batch, self.tokens), generator=generator)
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if self.model.multiple_choice:
            inputs = {name: value[:, None] for name, value in inputs.items()}
        return {name: value.to(self.model.device) for name, value in inputs.items()}
