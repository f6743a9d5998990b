"""Fine-tuning: the weights of the strategy's blocks themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from layerscope.cutting.save import save
from layerscope.models import Model
from layerscope.models.architecture import block_modules
from layerscope.tuning.method import CHECKPOINT, Method, head_parameters, unfreeze
from layerscope.tuning.strategy import Strategy


class Finetune(Method):
    """Trains the blocks, the head, and under strategies that say so the embeddings and all else beside the blocks."""

    name = "finetune"
    paper_rates = "finetune"

    def _prepare(self, model: Model, strategy: Strategy, embeddings: bool, seed: int) -> nn.Module:
        base = model.network.base_model
        modules = block_modules(base, model.architecture)
        unfreeze([p for b in strategy.blocks for p in modules[b - 1].parameters()])
        if embeddings:
            in_blocks = {id(p) for module in modules for p in module.parameters()}
            unfreeze([p for p in base.parameters() if id(p) not in in_blocks])
        unfreeze(head_parameters(model))
        return model.network

    def save(self, tuned: Model, trained: Any, folder: Path, strategy: Strategy) -> None:
        tuned.network.requires_grad_(True)
        save(tuned, folder / CHECKPOINT)
