"""LoRA (Hu et al. 2021): low-rank updates of the projections in the strategy's blocks, by peft."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from torch import nn

from layerscope.cutting.saving import save
from layerscope.errors import ModelError
from layerscope.models import Model, load
from layerscope.models.anatomy import block_modules
from layerscope.tuning.method import CHECKPOINT
from layerscope.tuning.peft import PeftMethod, head_names
from layerscope.tuning.strategy import Strategy


class Lora(PeftMethod):
    """Updates of rank `size`, scaled by 2; the result is merged into the weights, and peft's adapter is kept too."""

    name = "lora"
    size_is = "rank of LoRA"
    default_size = 8
    adds_float32 = True

    def __init__(self, size: int | None = None, everywhere: bool = False) -> None:
        super().__init__(size)
        self.everywhere = everywhere  # every projection of the blocks, and not only those of the family's record

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), **({"everywhere": True} if self.everywhere else {})}

    def check(self, model: Model, strategy: Strategy) -> None:
        super().check(model, strategy)
        self.needs_blocks(strategy)
        if self.everywhere and not projections(model, strategy):
            raise ModelError(f"The blocks of {model.name} have no projections that LoRA adapts; take finetune.")
        if not self.everywhere and not model.anatomy.lora:
            raise ModelError(
                f"{model.name} ({model.anatomy.family}) has no record of its projections; tune it with finetune."
            )

    def config(self, model: Model, strategy: Strategy) -> Any:
        from peft import LoraConfig

        assert self.size is not None
        anatomy = model.anatomy
        chosen: dict[str, Any] = {}
        if not anatomy.shared and not self.everywhere:
            chosen["layers_to_transform"] = [b - 1 for b in strategy.blocks]
            chosen["layers_pattern"] = anatomy.blocks.split(".")[-1]
        return LoraConfig(
            fan_in_fan_out=any(type(module).__name__ == "Conv1D" for module in model.network.modules()),
            r=self.size,
            lora_alpha=2 * self.size,
            target_modules=projections(model, strategy) if self.everywhere else list(anatomy.lora),
            modules_to_save=head_names(model),
            **chosen,
        )

    def _prepare(self, model: Model, strategy: Strategy, embeddings: bool, seed: int) -> nn.Module:
        from layerscope.tuning.quick_lora import quicken

        trained = super()._prepare(model, strategy, embeddings, seed)
        quicken(trained)
        return trained

    def save(self, tuned: Model, trained: Any, folder: Path, strategy: Strategy) -> None:
        super().save(tuned, trained, folder, strategy)
        network = trained.merge_and_unload()
        network.requires_grad_(True)
        save(load(network, tokenizer=tuned.tokenizer), folder / CHECKPOINT)


def projections(model: Model, strategy: Strategy) -> list[str]:
    """The paths of all projections in the strategy's blocks, as peft takes them."""
    from transformers.pytorch_utils import Conv1D

    modules = block_modules(model.network.base_model, model.anatomy)
    blocks = {id(modules[b - 1]) for b in strategy.blocks}
    inside = {
        id(part)
        for module in modules
        if id(module) in blocks
        for part in module.modules()
        if isinstance(part, (nn.Linear, Conv1D))
    }
    return [path for path, module in model.network.named_modules() if id(module) in inside]
