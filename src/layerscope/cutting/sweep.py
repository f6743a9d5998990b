"""Sweep: the answers of one model under many plans, without cutting it, in one pass over a split.

Plans share their prefixes, each of which runs once. The answers are kept in the store, window by window.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from layerscope.cutting.plan import LayerPlan
from layerscope.distributed import Team
from layerscope.errors import log
from layerscope.evaluation.evaluator import Evaluator, Read, joined
from layerscope.extraction.loop import parts_of
from layerscope.models import Model, Replay
from layerscope.models.selfcheck import BatchedReplay, primary
from layerscope.store import Artifact, is_sealed, seal, whole_file

Prefix = tuple[int, ...]  # the blocks that a state has gone through


class Trial:
    """Some plans for one model, which answer any batch together.

    The plans form a tree: a node is the state after some blocks. States of the whole model's own prefixes come from the
    recorded forward. The rest is run branch by branch, where a branch is all plans that leave the whole model's path at
    the same layer; within it, the states that wait for a block go through it together, in chunks no larger than an
    ordinary batch.
    """

    def __init__(self, model: Model, plans: Sequence[LayerPlan]) -> None:
        self.model = model
        self.plans = list(plans)
        for plan in self.plans:
            plan.check(model.depth)
        self._branches = _branches([plan.keep for plan in self.plans])

    @property
    def block_runs(self) -> int:
        """How often a block runs for a batch, with the recorded forward."""
        return self.model.depth + sum(len(nodes) for nodes in self._branches.values())

    def logits(self, inputs: dict[str, Tensor], ordinary_tokens: int, read: Read = primary) -> Tensor:
        """Return (plans, texts, numbers) for one batch; `read` makes the numbers of the model's output."""
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
    def _together(self) -> BatchedReplay:
        return BatchedReplay(self.model)

    def _answer(self, replay: Replay, states: dict[Prefix, Tensor], answers: list[Tensor | None], read: Read) -> None:
        """Fill in the answers of the plans that end at one of these states."""
        for k, plan in enumerate(self.plans):
            if plan.keep in states and answers[k] is None:
                answers[k] = read(replay.finish(states[plan.keep]))


def _branches(keeps: Sequence[Prefix]) -> dict[Prefix, list[Prefix]]:
    """Return, for each prefix at which plans leave the whole model's path, every node beyond it, shorter ones first."""
    branches: dict[Prefix, dict[Prefix, None]] = {}
    for keep in keeps:
        on_path = 0
        while on_path < len(keep) and keep[on_path] == on_path + 1:
            on_path += 1
        nodes = branches.setdefault(keep[:on_path], {})
        for length in range(on_path + 1, len(keep) + 1):
            nodes[keep[:length]] = None
    return {start: sorted(nodes, key=len) for start, nodes in branches.items()}


class Sweep(Artifact):
    """The answers of a model under every plan, equal to cutting it and running each."""

    kind = "trials"
    version = 5

    def __init__(self, evaluator: Evaluator, plans: Sequence[LayerPlan], title: str) -> None:
        self.evaluator, self.plans, self.title = evaluator, list(plans), title

    def spec(self) -> dict[str, Any]:
        return {**self.evaluator.spec(), "plans": [plan.spec() for plan in self.plans]}

    def build(self, folder: Path) -> None:
        """Write the answers of each window of texts when it is done, so that a killed command goes on from there.

        Several processes share the texts of each window, and the main one writes.
        """
        evaluator, trial, done, team = self.evaluator, Trial(self.evaluator.subject, self.plans), 0, Team.current()

        apart = sum(len(plan.keep) for plan in self.plans)
        log.info("%d blocks are run for each batch, where plan by plan it would be %d.", trial.block_runs, apart)

        def act(inputs: dict[str, Any], read: Read) -> torch.Tensor:
            return trial.logits(inputs, evaluator.ordinary_tokens, read)

        for number, part in enumerate(parts_of(evaluator.examples)):
            path = folder / f"shard-{number:05d}.safetensors"
            done += len(part)
            if team.broadcast(is_sealed(path)):
                continue
            logits, cut = evaluator.answers_together(part, act, f"{self.title} {done}/{len(evaluator.examples)}")
            if not team.is_main:
                continue
            shard = {"logits": torch.from_numpy(np.ascontiguousarray(logits)), "cut": torch.tensor(cut)}
            with whole_file(path) as temporary:
                save_file(shard, temporary)
            seal(path)

    def logits(self, note: bool = True) -> np.ndarray:
        """Return (plans, n, classes), and log how many of the texts are cut off, unless `note` is false."""
        folder = self.produce(Team.current())
        shards = [load_file(path) for path in sorted(folder.glob("shard-*.safetensors"))]
        if note:
            # Logged whether the work was done now or is in the store from an earlier run.
            self.evaluator.note_cut(sum(int(shard["cut"]) for shard in shards))
        return joined([shard["logits"].numpy() for shard in shards])


def sweep(evaluator: Evaluator, plans: Sequence[LayerPlan], title: str, *, note: bool = True) -> np.ndarray:
    """Return (plans, n, classes) logits of the model under every plan; memory is for one batch."""
    return Sweep(evaluator, plans, title).logits(note)
