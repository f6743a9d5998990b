"""Prefix tuning (Li and Liang 2021): trained keys and values before those of every block, by peft."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from types import MethodType
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.errors import InputError, ModelError
from layerscope.models import Model
from layerscope.models.architecture import PREFIXES
from layerscope.models.weight_files import adapter_weights
from layerscope.tuning.method import ADAPTER
from layerscope.tuning.peft import PeftMethod, head_names
from layerscope.tuning.strategy import Strategy


class Prefix(PeftMethod):
    """`size` virtual tokens before every text. Every block sees them, so no block's output can be kept."""

    name = "prefix"
    size_is = "number of virtual tokens"
    default_size = 16
    standard = False
    freezes_below = False
    stands_for_network = True  # peft makes the keys and values in the forward of its own module

    def check(self, model: Model, strategy: Strategy) -> None:
        super().check(model, strategy)
        if not model.architecture.prefix:
            raise ModelError(f"peft has no prefix tuning for {model.architecture.family}; tune it with finetune.")
        if self.is_partial(strategy) or not strategy.blocks:
            raise InputError(
                f"Prefix tuning works on the whole model and cannot choose blocks; {strategy} asks for some."
            )

    def config(self, model: Model, strategy: Strategy) -> Any:
        from peft import PrefixTuningConfig, TaskType

        assert self.size is not None
        head = head_names(model)
        return PrefixTuningConfig(task_type=TaskType.SEQ_CLS, num_virtual_tokens=self.size, modules_to_save=head)

    def plain(self, tuned: Model, trained: Any) -> Model:
        twin = copy.deepcopy(trained)  # peft saves what it has wrapped, so that must stay as it is
        put_before(twin.get_base_model(), twin)
        return replace(tuned, network=twin.get_base_model())

    def reopen(self, base: Model, folder: Path) -> Model:
        from peft import PeftModel

        adapter_weights(folder / ADAPTER)
        put_before(base.network, PeftModel.from_pretrained(base.network, folder / ADAPTER).eval())
        return base


class Prefixes(nn.Module):
    """The trained keys and values of every block, as peft makes them for a batch."""

    def __init__(self, trained: Any) -> None:
        super().__init__()
        self.prompts = trained.prompt_encoder
        self.virtual_tokens = int(trained.active_peft_config.num_virtual_tokens)
        self._peft = [trained]  # in a list: the network is in it, and must not be registered in itself

    def forward(self, texts: int) -> Any:
        return self._peft[0].get_prompt(texts)


def put_before(network: Any, trained: Any) -> None:
    """Let a plain network answer as peft's module around it does: its base adds the prefix wherever it is run."""
    from peft.utils import ModulesToSaveWrapper

    base = network.base_model
    for name, module in list(network.named_modules()):
        if isinstance(module, ModulesToSaveWrapper):  # the head, as it was trained
            parent, _, last = name.rpartition(".")
            setattr(network.get_submodule(parent), last, module.modules_to_save[module.active_adapters[0]])
    base.register_module(PREFIXES, Prefixes(trained))
    base.forward = MethodType(_with_prefix, base)  # a method, so that a copy's is the copy's


def _with_prefix(base: Any, input_ids: Tensor, attention_mask: Tensor | None = None, **kwargs: Any) -> Any:
    """Run the family's own forward, with the prefix before every text."""
    prefixes = getattr(base, PREFIXES)
    mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    mask = torch.cat([mask.new_ones(len(mask), prefixes.virtual_tokens), mask], dim=1)
    before = {"attention_mask": mask, "past_key_values": prefixes(len(mask))}
    return type(base).forward(base, input_ids=input_ids, **{**kwargs, **before})
