"""What the methods that come from peft share."""

from __future__ import annotations

from abc import abstractmethod
from pathlib import Path
from typing import Any

import torch
from torch import nn

from layerscope.models import Model
from layerscope.models.architecture import head_modules
from layerscope.models.heads import HEADS
from layerscope.tuning.method import ADAPTER, Method
from layerscope.tuning.strategy import Strategy


class PeftMethod(Method):
    """A method that peft implements, saved in peft's own format."""

    @abstractmethod
    def config(self, model: Model, strategy: Strategy) -> Any:
        """Return peft's config of the method for this model."""

    def _prepare(self, model: Model, strategy: Strategy, embeddings: bool, seed: int) -> nn.Module:
        from peft import get_peft_model

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return get_peft_model(model.network, self.config(model, strategy))

    def save(self, tuned: Model, trained: Any, folder: Path, strategy: Strategy) -> None:
        trained.save_pretrained(folder / ADAPTER, save_embedding_layers=False)  # no method here trains them


def head_names(model: Model) -> list[str]:
    """Return the head's modules by their last name, as `modules_to_save` takes them: trained and saved whole.

    A head with an output for every token stays as it is: it is as large as the embeddings, and often the same tensor.
    """
    if not model.has_head or HEADS[model.head].outputs == "vocabulary":
        return []
    return sorted({path.split(".")[-1] for path in head_modules(model.network, model.architecture)})
