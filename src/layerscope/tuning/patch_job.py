"""A healing that trains nothing, as an artifact: a patch is solved, folded in, saved, reopened and compared."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import nn

from layerscope.cutting.model_card import PATCH
from layerscope.cutting.patch import patch
from layerscope.cutting.patch_texts import PatchTexts
from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.save import save
from layerscope.distributed import Team
from layerscope.models import Model
from layerscope.models.extras import parameter_count
from layerscope.store import discard, write_json
from layerscope.tuning.healing_job import PATCHED, HealingJob, described
from layerscope.tuning.method import CHECKPOINT, Method
from layerscope.tuning.strategy import Strategy
from layerscope.tuning.trainer import Outcome
from layerscope.tuning.training_job import RESULT


class PatchMethod(Method):
    """Stands for a patch where a training has its method: nothing is trained by it."""

    name: ClassVar[str] = PATCH

    def _prepare(self, model: Model, strategy: Strategy, embeddings: bool, seed: int) -> nn.Module:
        raise NotImplementedError  # a patch job has no training

    def save(self, tuned: Model, trained: Any, folder: Path, strategy: Strategy) -> None:
        save(tuned, folder / CHECKPOINT)


@dataclass(eq=False)
class PatchJob(HealingJob):
    """A cut model, the plan that cut it, and the texts that its patch is solved, chosen and judged on."""

    kind = PATCHED
    version = 1

    plan: LayerPlan | None = None
    texts: PatchTexts | None = None

    def spec(self) -> dict[str, Any]:
        assert self.plan is not None
        assert self.texts is not None
        return {**super().spec(), "plan": self.plan.spec(), "texts": self.texts.spec()}

    def build(self, folder: Path) -> None:
        assert self.uncut is not None
        assert self.plan is not None
        assert self.texts is not None
        started = time.perf_counter()
        tuned = self.prepared()
        found = patch(self.uncut, self.plan, tuned.network, self.texts)
        seconds = time.perf_counter() - started
        if not Team.current().is_main:
            return
        discard(folder / CHECKPOINT)
        self._healed_answers = self.objective.answers(tuned)
        self._healed = self.objective.score(tuned, self._healed_answers)
        said = "neither solved nor chosen on; they decided whether the patch is applied"
        self._healed.note = "; ".join(part for part in (self._healed.note, said) if part)
        save(tuned, folder / CHECKPOINT, scores=[] if np.isnan(self._healed) else [self._healed])
        first = found.domains[0]
        loss = first.patched if found.applied else first.cut  # of the network that is saved
        entry = {"epoch": 0.0, "score": float(self._healed), "loss": loss}
        outcome = Outcome(np.empty(0), [entry], [], seconds, 0)
        solved = sum(fold.weight.numel() + (0 if fold.bias is None else fold.bias.numel()) for fold in found.folds)
        result = {**self._result(outcome, solved, False, ()), "patch": described(found)}
        write_json(folder / RESULT, {**result, "parameters": parameter_count(tuned.network)})

    def _result(self, outcome: Outcome, trainable: int, cached: bool, rows: Sequence[Any]) -> dict[str, Any]:
        assert self.texts is not None
        result = super()._result(outcome, trainable, cached, rows)
        solving = self.texts.solving
        result["rows"]["learned"] = len(solving.examples)
        return {**result, "tokens": int(sum(map(len, solving.encoded())))}
