"""Prefix tuning (Li and Liang 2021): trained keys and values before those of every block, by peft."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from layerscope.errors import InputError, ModelError
from layerscope.models import Model
from layerscope.models.headers import adapter_weights
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
    comparable = False

    def check(self, model: Model, strategy: Strategy) -> None:
        super().check(model, strategy)
        if not model.anatomy.prefix:
            raise ModelError(f"peft has no prefix tuning for {model.anatomy.family}; tune it with finetune.")
        if self.is_partial(strategy) or not strategy.blocks:
            raise InputError(
                f"Prefix tuning works on the whole model and cannot choose blocks; {strategy} asks for some."
            )

    def config(self, model: Model, strategy: Strategy) -> Any:
        from peft import PrefixTuningConfig, TaskType

        assert self.size is not None
        head = head_names(model)
        return PrefixTuningConfig(task_type=TaskType.SEQ_CLS, num_virtual_tokens=self.size, modules_to_save=head)

    def reopen(self, base: Model, folder: Path) -> Model:
        from peft import PeftModel

        adapter_weights(folder / ADAPTER)
        base.network = PeftModel.from_pretrained(base.network, folder / ADAPTER).eval()
        return base
