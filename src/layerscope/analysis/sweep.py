"""Many plans of one model over a labelled split: logits of all, in one pass, kept in the store shard by shard."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from layerscope.extract.exam import WINDOW, Exam, joined
from layerscope.models.identity import fingerprint, tokenizer_fingerprint
from layerscope.store import Store, digest, sync
from layerscope.surgery import LayerPlan, Trial

VERSION = 1


def sweep(exam: Exam, plans: Sequence[LayerPlan], title: str) -> np.ndarray:
    """(plans, n, classes) logits of the model under every plan, equal to cutting it and running each.

    Memory is for one batch. Each window of texts is written when it is done, so that a killed run goes on from there.
    """
    examples = exam.examples
    spec = {
        "version": VERSION,
        "model": fingerprint(exam.model),
        "dtype": str(exam.model.network.dtype),
        "tokenizer": tokenizer_fingerprint(exam.model.require_tokenizer()),
        "data": examples.fingerprint,
        "task": examples.task,
        "split": examples.split,
        "rows": digest(examples.rows.tobytes()),
        "outputs": exam.outputs.tolist(),
        "plans": [plan.to_dict() for plan in plans],
        **exam.reading.spec(),
    }
    folder = Store().produce("trials", spec, partial(_write, exam, Trial(exam.model, plans), title))
    return joined([load_file(path)["logits"].numpy() for path in sorted(folder.glob("shard-*.safetensors"))])


def _write(exam: Exam, trial: Trial, title: str, folder: Path) -> None:
    def act(inputs: dict[str, Any]) -> torch.Tensor:
        return trial.logits(inputs, exam.ordinary_tokens)

    for number, start in enumerate(range(0, len(exam.examples), WINDOW)):
        path = folder / f"shard-{number:05d}.safetensors"
        if path.is_file():
            continue
        part = exam.examples.take(slice(start, start + WINDOW))
        logits = exam.logits(act, part, f"{title} {start + len(part)}/{len(exam.examples)}")
        temporary = path.with_name(f".{path.name}")
        save_file({"logits": torch.from_numpy(np.ascontiguousarray(logits))}, temporary)
        sync(temporary)
        temporary.replace(path)
