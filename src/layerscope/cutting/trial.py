"""What a model would answer under many plans, without cutting: one forward, every shared prefix run once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

import torch
from torch import Tensor

from layerscope.cutting.plan import LayerPlan
from layerscope.evaluation.sitting import Read
from layerscope.models import Model, Replay
from layerscope.models.selfcheck import primary
from layerscope.models.together import Together

Prefix = tuple[int, ...]  # the blocks that a state has gone through


class Trial:
    """Some plans for one model, ready for any batch.

    The plans form a tree: a node is the state after some blocks. States of the whole model's own prefixes come from the
    recorded forward. The rest is run branch by branch, where a branch is all plans that leave the whole model's path
    at the same layer; within it, the states that wait for a block go through it together, in chunks no larger than
    an ordinary batch.
    """

    def __init__(self, model: Model, plans: Sequence[LayerPlan]) -> None:
        self.model = model
        self.plans = list(plans)
        for plan in self.plans:
            plan.check(model.depth)
        self._branches = _branches([plan.keep for plan in self.plans])

    @property
    def block_runs(self) -> int:
        """How often a block is run for a batch, the recorded forward included."""
        return self.model.depth + sum(len(nodes) for nodes in self._branches.values())

    def logits(self, inputs: dict[str, Tensor], ordinary_tokens: int, read: Read = primary) -> Tensor:
        """(plans, texts, numbers) for one batch; `read` makes the numbers of what the model gives."""
        replay = Replay(self.model, inputs)
        together = max(1, ordinary_tokens // max(1, inputs["input_ids"].numel()))
        answers: list[Tensor | None] = [None] * len(self.plans)
        for start, nodes in self._branches.items():
            states = {start: replay.states[len(start)]}
            self._answer(replay, states, answers, read)
            waiting = [prefix[:-1] for prefix in nodes]
            for block in sorted({prefix[-1] for prefix in nodes}):
                here = [prefix for prefix in nodes if prefix[-1] == block]
                for k in range(0, len(here), together):
                    chunk = here[k : k + together]
                    results = self._run(replay, [states[prefix[:-1]] for prefix in chunk], block)
                    for prefix, state in zip(chunk, results, strict=True):
                        states[prefix] = state
                        waiting.remove(prefix[:-1])
                self._answer(replay, {prefix: states[prefix] for prefix in here}, answers, read)
                states = {prefix: state for prefix, state in states.items() if prefix in waiting}
        return torch.stack([logits for logits in answers if logits is not None])

    def _run(self, replay: Replay, states: list[Tensor], block: int) -> list[Tensor]:
        if len(states) == 1:
            return [replay.run(states[0], block)]
        return self._together.run(replay, states, block)

    @cached_property
    def _together(self) -> Together:
        return Together(self.model)

    def _answer(self, replay: Replay, states: dict[Prefix, Tensor], answers: list[Tensor | None], read: Read) -> None:
        for k, plan in enumerate(self.plans):
            if plan.keep in states and answers[k] is None:
                answers[k] = read(replay.finish(states[plan.keep]))


def _branches(keeps: Sequence[Prefix]) -> dict[Prefix, list[Prefix]]:
    """Where plans leave the whole model's path -> every node beyond it, shorter ones first."""
    branches: dict[Prefix, dict[Prefix, None]] = {}
    for keep in keeps:
        on_path = 0
        while on_path < len(keep) and keep[on_path] == on_path + 1:
            on_path += 1
        nodes = branches.setdefault(keep[:on_path], {})
        for length in range(on_path + 1, len(keep) + 1):
            nodes[keep[:length]] = None
    return {start: sorted(nodes, key=len) for start, nodes in branches.items()}
