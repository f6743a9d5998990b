"""LoRA (Hu et al. 2021): low-rank updates of the projections in the strategy's blocks, by peft.

Small models wait for Python and for kernels to be started, not for arithmetic. peft runs a projection as a dozen
operations, each with its own node in the graph of gradients, and under autocast rounds the frozen weight anew in every
step. `QuickLinear` is one node, with three products forward and five back, and gradients in closed form; the frozen
weight is rounded to bfloat16 once, or used as it is where it lies in that type. The weights, their names, and how they
are merged and saved are peft's.

Large models wait for memory. Beside weights of 16 bits peft makes the input of every projection float32, for its
updates, and autocast rounds that again: each of the seven projections in a block of Llama keeps a copy of its input for
the backward pass. Here they keep the input itself, which is one tensor where several projections read the same states.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from peft.tuners.lora import Linear
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from layerscope.cutting.save import save
from layerscope.errors import ModelError
from layerscope.models import Model, load
from layerscope.models.architecture import block_modules
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
        if not self.everywhere and not model.architecture.lora:
            raise ModelError(
                f"{model.name} ({model.architecture.family}) has no record of its projections; tune it with finetune."
            )

    def config(self, model: Model, strategy: Strategy) -> Any:
        from peft import LoraConfig

        assert self.size is not None
        architecture = model.architecture
        chosen: dict[str, Any] = {}
        if not architecture.shared and not self.everywhere:
            chosen["layers_to_transform"] = [b - 1 for b in strategy.blocks]
            chosen["layers_pattern"] = architecture.blocks.split(".")[-1]
        return LoraConfig(
            fan_in_fan_out=any(type(module).__name__ == "Conv1D" for module in model.network.modules()),
            r=self.size,
            lora_alpha=2 * self.size,
            target_modules=projections(model, strategy) if self.everywhere else list(architecture.lora),
            modules_to_save=head_names(model),
            **chosen,
        )

    def _prepare(self, model: Model, strategy: Strategy, embeddings: bool, seed: int) -> nn.Module:

        trained = super()._prepare(model, strategy, embeddings, seed)
        quicken(trained)
        return trained

    def save(self, tuned: Model, trained: Any, folder: Path, strategy: Strategy) -> None:
        super().save(tuned, trained, folder, strategy)
        network = trained.merge_and_unload(safe_merge=True)  # into new tensors: others may use the weights as they were
        network.requires_grad_(True)
        save(load(network, tokenizer=tuned.tokenizer), folder / CHECKPOINT)


def projections(model: Model, strategy: Strategy) -> list[str]:
    """Return the paths of all projections in the strategy's blocks, as peft takes them."""
    from transformers.pytorch_utils import Conv1D

    modules = block_modules(model.network.base_model, model.architecture)
    blocks = {id(modules[b - 1]) for b in strategy.blocks}
    inside = {
        id(part)
        for module in modules
        if id(module) in blocks
        for part in module.modules()
        if isinstance(part, (nn.Linear, Conv1D))
    }
    return [path for path, module in model.network.named_modules() if id(module) in inside]


_HALF = 2  # bytes of a number
_ROOM = 0.5  # of the free memory of a GPU: so much the rounded copies of frozen weights may take


class QuickLinear(Linear):
    """A plain LoRA projection; wherever it is more than that, it answers as peft's."""

    keeps_weight = True  # whether the rounded weight is kept from step to step
    _weight: tuple[Any, Tensor] | None = None

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        names = self.active_adapters
        if args or kwargs or self.merged or self.disable_adapters or len(names) != 1:
            return super().forward(x, *args, **kwargs)
        name, kind = names[0], x.device.type
        base: Any = self.base_layer
        trained = (self.lora_A[name].weight, self.lora_B[name].weight)
        rounds = torch.is_autocast_enabled(kind)
        if not rounds and base.weight.dtype != trained[0].dtype:  # then the updates alone are in float32
            return super().forward(x, *args, **kwargs)
        dtype = torch.get_autocast_dtype(kind) if rounds else x.dtype
        bias = None if base.bias is None else base.bias.to(dtype)
        answer: Tensor = _Projection.apply(x, *trained, self._frozen(base.weight, dtype), bias, self.scaling[name])
        return answer

    def _frozen(self, weight: Tensor, dtype: torch.dtype) -> Tensor:
        """Return (out, in) the frozen weight in the float type of the products."""
        if weight.dtype != dtype:
            key = (weight.data_ptr(), weight._version, dtype)
            if self._weight is not None and self._weight[0] == key:
                weight = self._weight[1]
            else:
                weight = weight.detach().to(dtype)
                self._weight = (key, weight) if self.keeps_weight else None
        return weight.t() if self.fan_in_fan_out else weight

    def merge(self, *args: Any, **kwargs: Any) -> None:
        self._weight = None
        super().merge(*args, **kwargs)

    def unmerge(self) -> None:
        self._weight = None
        super().unmerge()


class _Projection(torch.autograd.Function):
    """x W' + bias + scaling x A' B', with gradients for x, A and B; W and the bias come rounded."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        down: Tensor,
        up: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        scaling: float,
    ) -> Tensor:
        flat = x.reshape(-1, x.shape[-1]).to(weight.dtype)  # (rows, in)
        # Anew in every step: a fused optimizer changes parameters without any sign of it.
        a, b = down.to(weight.dtype), up.to(weight.dtype)  # (rank, in), (out, rank)
        inner = flat.mm(a.t())  # (rows, rank)
        answer = flat.mm(weight.t()) if bias is None else torch.addmm(bias, flat, weight.t())
        answer.addmm_(inner, b.t(), alpha=scaling)
        ctx.save_for_backward(flat, inner, a, b, weight)
        ctx.scaling, ctx.shape, ctx.kinds = scaling, x.shape, (x.dtype, down.dtype, up.dtype)
        return answer.view(*x.shape[:-1], -1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        flat, inner, a, b, weight = ctx.saved_tensors
        given = gradients[0].reshape(-1, weight.shape[0])  # (rows, out)
        back = given.mm(b).mul_(ctx.scaling)  # (rows, rank)
        back_to_x = down = up = None
        if ctx.needs_input_grad[0]:
            back_to_x = given.mm(weight).addmm_(back, a).view(ctx.shape).to(ctx.kinds[0])
        if ctx.needs_input_grad[1]:
            down = back.t().mm(flat).to(ctx.kinds[1])
        if ctx.needs_input_grad[2]:
            up = given.t().mm(inner).to(ctx.kinds[2]).mul_(ctx.scaling)
        return back_to_x, down, up, None, None, None


def quicken(network: nn.Module) -> int:
    """Let every plain LoRA projection of a network answer in fewer steps, and return how many there are."""
    chosen: list[Any] = [module for module in network.modules() if _is_plain(module)]
    if not chosen:
        return 0
    weights = [module.base_layer.weight for module in chosen]
    rounded = sum(weight.numel() for weight in weights if weight.dtype != torch.bfloat16)
    size, device = rounded * torch.bfloat16.itemsize, weights[0].device
    fits = device.type != "cuda" or size <= _ROOM * torch.cuda.mem_get_info(device)[0]
    for module in chosen:
        module.__class__, module.keeps_weight = QuickLinear, fits
    return len(chosen)


def _is_plain(module: Any) -> bool:
    """Return whether a module is peft's LoRA around a projection, with one adapter and no dropout, bias or variant."""
    if type(module) is not Linear or type(module.base_layer) not in (nn.Linear, Conv1D):
        return False
    if module.fan_in_fan_out != isinstance(module.base_layer, Conv1D):
        return False
    names = list(module.lora_A)
    if len(names) != 1 or module.lora_variant or not isinstance(module.lora_dropout[names[0]], nn.Identity):
        return False
    down, up, weight = module.lora_A[names[0]], module.lora_B[names[0]], module.base_layer.weight
    if up.bias is not None or weight.requires_grad or down.weight.dtype != up.weight.dtype:
        return False
    return weight.is_floating_point() and (weight.dtype == down.weight.dtype or weight.itemsize == _HALF)
