"""What a method trains, on the strategy's blocks only: finetune, adapter, lora, prefix."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from layerscope.errors import InputError, ModelError, choose
from layerscope.models import Model
from layerscope.models.anatomy import block_modules, head_modules
from layerscope.tuning.adapters import WIDTH, adapters_of, add_adapters, norms_of
from layerscope.tuning.strategy import Strategy

_SIZES = {"adapter": "width of an adapter", "lora": "rank of LoRA", "prefix": "number of virtual tokens"}
METHODS = ("finetune", "adapter", "lora", "prefix")


@dataclass(frozen=True)
class Method:
    """A way to train: its name and its size (adapter width, LoRA rank, virtual tokens)."""

    name: str = "finetune"
    size: int | None = None

    @staticmethod
    def of(name: str | Method, size: int | None = None) -> Method:
        if isinstance(name, Method):
            return name
        choose("method", name, METHODS)
        if size is not None and name == "finetune":
            raise InputError(f"size is {size}, and finetune has none; it belongs to adapter, lora and prefix.")
        if size is not None and size < 1:
            raise InputError(f"size is {size}; the {_SIZES[name]} must be at least 1.")
        default = {"adapter": WIDTH, "lora": 8, "prefix": 16}.get(name)
        return Method(name, default if size is None else size)

    @property
    def standard(self) -> bool:
        """Whether the result is a standard checkpoint."""
        return self.name in ("finetune", "lora")


def check(model: Model, strategy: Strategy, method: Method) -> None:
    """Raise the reason why a method cannot be used with a strategy on this model."""
    anatomy = model.anatomy
    blocks = strategy.blocks
    partial = blocks and blocks != tuple(range(1, int(strategy.head) + 1))
    if anatomy.shared and partial:
        raise ModelError(
            f"{model.name} ({anatomy.family}) runs one block {model.depth} times: blocks {blocks[0]}..{blocks[-1]} "
            "cannot be tuned without the others. Use full, (1, k, k) or head-only."
        )
    if method.name in ("adapter", "lora") and not blocks:
        raise InputError(f"The strategy {strategy} tunes no block, so there is nothing for {method.name} to sit in.")
    if method.name == "lora" and not anatomy.lora:
        raise ModelError(f"{model.name} ({anatomy.family}) has no record of its projections; tune it with finetune.")
    if method.name == "prefix":
        if not anatomy.prefix:
            raise ModelError(f"peft has no prefix tuning for {anatomy.family}; use finetune, adapter or lora.")
        if partial or not blocks:
            raise InputError(
                f"Prefix tuning works on the whole model and cannot choose blocks; {strategy} asks for some."
            )


def apply(model: Model, strategy: Strategy, method: Method, embeddings: bool, seed: int) -> Any:
    """Freeze what is not trained and add what the method adds; gives the module to train (peft wraps the network).

    `embeddings` says whether fine-tuning includes them, which depends on the depth of the model before it was cut.
    """
    check(model, strategy, method)
    network, anatomy, blocks = model.network, model.anatomy, strategy.blocks
    network.requires_grad_(False)
    if method.name in ("lora", "prefix"):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return _with_peft(model, blocks, method)
    trained: list[nn.Parameter] = []
    modules = block_modules(network.base_model, anatomy)
    if method.name == "adapter":
        assert method.size is not None
        add_adapters(model, blocks, method.size, seed)
        trained += adapters_of(network) + norms_of(model, blocks)
    else:
        trained += [p for b in blocks for p in modules[b - 1].parameters()]
        if embeddings:
            trained += list(network.base_model.parameters())
    trained += [p for path in head_modules(network, anatomy) for p in network.get_submodule(path).parameters()]
    for parameter in trained:
        parameter.requires_grad_(True)
    return network


def _with_peft(model: Model, blocks: Sequence[int], method: Method) -> Any:
    from peft import LoraConfig, PrefixTuningConfig, TaskType, get_peft_model

    network, anatomy = model.network, model.anatomy
    assert method.size is not None
    head = sorted({path.split(".")[-1] for path in head_modules(network, anatomy)})
    config: Any
    if method.name == "prefix":
        config = PrefixTuningConfig(task_type=TaskType.SEQ_CLS, num_virtual_tokens=method.size, modules_to_save=head)
    else:
        chosen: dict[str, Any] = {} if anatomy.shared else {"layers_to_transform": [b - 1 for b in blocks]}
        if chosen:
            chosen["layers_pattern"] = anatomy.blocks.split(".")[-1]
        transposed = any(type(module).__name__ == "Conv1D" for module in network.modules())
        config = LoraConfig(
            fan_in_fan_out=transposed,
            r=method.size,
            lora_alpha=2 * method.size,
            target_modules=list(anatomy.lora),
            modules_to_save=head,
            **chosen,
        )
    return get_peft_model(network, config)


def counts(network: nn.Module) -> tuple[int, int]:
    """Parameters in all, and those that are trained."""
    return sum(p.numel() for p in network.parameters()), sum(p.numel() for p in network.parameters() if p.requires_grad)
