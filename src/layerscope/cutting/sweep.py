"""Many plans of one model over a split: the answers of all, in one pass, kept in the store window by window."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.trial import Trial
from layerscope.errors import log
from layerscope.evaluation.sitting import Read, Sitting, joined
from layerscope.extraction.loop import parts_of
from layerscope.store import Artifact, is_sealed, seal, whole_file
from layerscope.team import Team


class Sweep(Artifact):
    """The answers of a model under every plan, equal to cutting it and running each."""

    kind = "trials"
    version = 5

    def __init__(self, exam: Sitting, plans: Sequence[LayerPlan], title: str) -> None:
        self.exam, self.plans, self.title = exam, list(plans), title

    def spec(self) -> dict[str, Any]:
        return {**self.exam.spec(), "plans": [plan.spec() for plan in self.plans]}

    def build(self, folder: Path) -> None:
        """Each window of texts is written when it is done, so that a killed command goes on from there.

        Several processes share the texts of each window, and the main one writes.
        """
        exam, trial, done, team = self.exam, Trial(self.exam.subject, self.plans), 0, Team.current()

        apart = sum(len(plan.keep) for plan in self.plans)
        log.info("%d blocks are run for each batch, where plan by plan it would be %d.", trial.block_runs, apart)

        def act(inputs: dict[str, Any], read: Read) -> torch.Tensor:
            return trial.logits(inputs, exam.ordinary_tokens, read)

        for number, part in enumerate(parts_of(exam.examples)):
            path = folder / f"shard-{number:05d}.safetensors"
            done += len(part)
            if team.tell(is_sealed(path)):
                continue
            logits, cut = exam.answers_together(part, act, f"{self.title} {done}/{len(exam.examples)}")
            if not team.is_main:
                continue
            shard = {"logits": torch.from_numpy(np.ascontiguousarray(logits)), "cut": torch.tensor(cut)}
            with whole_file(path) as temporary:
                save_file(shard, temporary)
            seal(path)

    def logits(self, note: bool = True) -> np.ndarray:
        """(plans, n, classes). Says how many of the texts are cut off, unless `note` is false."""
        folder = self.produce(Team.current())
        shards = [load_file(path) for path in sorted(folder.glob("shard-*.safetensors"))]
        if note:
            self.exam.note_cut(sum(int(shard["cut"]) for shard in shards))  # whether the work was done now or earlier
        return joined([shard["logits"].numpy() for shard in shards])


def sweep(exam: Sitting, plans: Sequence[LayerPlan], title: str, *, note: bool = True) -> np.ndarray:
    """(plans, n, classes) logits of the model under every plan; memory is for one batch."""
    return Sweep(exam, plans, title).logits(note)
