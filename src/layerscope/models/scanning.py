"""A network, a tokenizer or any value in them as text: all that its answers depend on, or what cannot be told of it."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable, Mapping, Sequence, Set
from operator import itemgetter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks

from layerscope.models.hashing import bytes_hash, hashing_ahead
from layerscope.models.spread import weight
from layerscope.store import digest

_CONFIG_VOLATILE = ("_name_or_path", "architectures", "transformers_version", "dtype", "torch_dtype", "use_cache")
# Libraries whose code is known by its name; anybody else's may be another one under the same name.
_LIBRARIES = {"torch", "transformers", "peft", "accelerate", "layerscope", "tokenizers", "builtins", "collections"}
# Attributes of modules that say where a network comes from or what it has been through, and never what it answers.
_MODULE_VOLATILE = {
    *("training", "name_or_path", "model_tags", "warnings_issued", "generation_config", "max_seq_len_cached"),
    *("gradient_checkpointing", "is_gradient_checkpointing", "config", "hf_device_map"),
}
_ADAPTER_STATE = ("_active_adapter", "_disable_adapters")  # which of peft's adapters answer
_PEFT_VOLATILE = ("base_model_name_or_path", "revision", "inference_mode", "peft_version")


class Scan:
    """Turns a network or a tokenizer into text; what it cannot read is listed in `unknown`."""

    def __init__(self) -> None:
        self.unknown: list[str] = []
        self._seen: dict[int, Any] = {}

    def network(self, network: Any) -> str:
        """Class, config, every tensor, and every module's own settings, functions and adapters."""
        parts = [self._config(network.config), *self._tensors(network), *self._modules(network, network.config)]
        return digest(*parts)

    def weights(self, network: nn.Module) -> str:
        """Every tensor."""
        return digest(*self._tensors(network))

    def modules(self, network: nn.Module, config: Any) -> str:
        """Every module's own settings, functions and adapters."""
        return digest(*self._modules(network, config))

    def _tensors(self, network: nn.Module) -> list[str]:
        with hashing_ahead() as begin:
            parts = []
            for name, tensor in sorted([*network.named_parameters(), *network.named_buffers()], key=itemgetter(0)):
                held = weight(network, name, tensor)
                if held is None:
                    self.unknown.append(f"no numbers for {name}")
                    continue
                # What waits on the host or the disk is read one after the other, so that little of it is in memory.
                later = begin(held) if held is tensor else functools.partial(str, bytes_hash(held))
                parts.append((f"{name} {held.dtype} {tuple(held.shape)}", later))
            return [f"{text} {later()}" for text, later in parts]

    def _modules(self, network: nn.Module, config: Any) -> list[str]:
        parts = [f"{name} {self._module(name, module, config)}" for name, module in network.named_modules()]
        if _global_forward_hooks or _global_forward_pre_hooks:
            self.unknown.append("a forward hook for all modules")
        return parts

    def _config(self, config: Any) -> str:
        return self.content({k: v for k, v in config.to_dict().items() if k not in _CONFIG_VOLATILE}, "the config")

    def _module(self, name: str, module: nn.Module, whole: Any) -> str:
        place = name or "the network"
        hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
        if not all(_of_library(hook) for some in hooks for hook in some.values()):
            self.unknown.append(f"a hook on {place}")
        own = {
            key: value
            for key, value in vars(module).items()
            if (not key.startswith("_") or key in _ADAPTER_STATE) and key not in _MODULE_VOLATILE and not _moves(value)
        }
        config = whole if whole is None else getattr(module, "config", whole)
        apart = ""
        if config is not whole and hasattr(config, "to_dict"):
            own_config = self._config(config)
            apart = own_config if own_config != self._config(whole) else ""
        return f"{self.kind(module, place)} {apart} {self.content(own, place)}"

    def kind(self, value: Any, place: str) -> str:
        """The class of a value; what a class of no library does cannot be told."""
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        if not _of_library(type(value)):
            self.unknown.append(f"an object of {kind} in {place}")
        return kind

    def content(self, value: Any, place: str = "it") -> str:
        """A value as text, the same for equal values in any process."""
        if value is None or isinstance(value, (bool, int, float, complex, str, bytes, torch.dtype)):
            return repr(value)
        if isinstance(value, (torch.device, nn.Module)) or id(value) in self._seen:
            return type(value).__name__  # modules are scanned by themselves
        if isinstance(value, (Tensor, np.ndarray, np.generic)):
            tensor = torch.as_tensor(value)
            return f"{tensor.dtype} {tuple(tensor.shape)} {bytes_hash(tensor)}"
        if isinstance(value, (Mapping, Set, Sequence)):
            return self._container(value, place)
        if isinstance(value, functools.partial) or hasattr(value, "__qualname__"):
            return self._function(value, place)
        return self._object(value, place)

    def _container(self, value: Mapping[Any, Any] | Set[Any] | Sequence[Any], place: str) -> str:
        if isinstance(value, Mapping):
            return "{" + ", ".join(sorted(f"{k!r}: {self.content(v, place)}" for k, v in value.items())) + "}"
        parts = [self.content(v, place) for v in value]
        return "{" + ", ".join(sorted(parts)) + "}" if isinstance(value, Set) else "[" + ", ".join(parts) + "]"

    def _function(self, value: Any, place: str) -> str:
        if isinstance(value, functools.partial):
            return f"partial {self._function(value.func, place)} {self.content([value.args, value.keywords], place)}"
        name = f"{getattr(value, '__module__', None)}.{value.__qualname__}"
        # The name of a lambda, or of a function inside another one, does not tell what it does; nor does a user's.
        if "<" in name or not _of_library(value):
            self.unknown.append(f"a function of its own in {place}")
        return name

    def _object(self, value: Any, place: str) -> str:
        if hasattr(value, "serialized_model_proto"):  # sentencepiece
            return f"{type(value).__qualname__} {digest(value.serialized_model_proto())}"
        if hasattr(value, "pattern") and hasattr(value, "flags"):  # a compiled expression, of re or of regex
            return f"pattern {value.pattern!r} {int(value.flags)}"
        kind = self.kind(value, place)
        if hasattr(value, "to_dict"):
            return (
                f"{kind} {self.content({k: v for k, v in value.to_dict().items() if k not in _PEFT_VOLATILE}, place)}"
            )
        if kind.startswith("tokenizers."):  # such as an added token: it says all of itself
            return f"{kind} {value!r}"
        self._seen[id(value)] = value
        return f"{kind} {self.content(dict(vars(value)), place)}" if _has_state(value) else kind


def _has_state(value: Any) -> bool:
    return hasattr(value, "__dict__") and not type(value).__module__.startswith("torch")


def _of_library(code: Callable[..., Any]) -> bool:
    """Whether a class, a function or a hook is a library's, so that its name tells what it does."""
    function: Any = code.func if isinstance(code, functools.partial) else code
    function = getattr(function, "__func__", function)
    wrapped = getattr(function, "__wrapped__", None)
    if wrapped is not None and not _of_library(wrapped):
        return False
    # A function's globals tell where it was written, whatever name functools.wraps has given it.
    written = isinstance(function, types.FunctionType)
    module = function.__globals__.get("__name__") if written else getattr(function, "__module__", None)
    if module is None:  # built into Python or torch, which say so of few of their functions
        return isinstance(function, types.BuiltinFunctionType)
    return str(module).split(".")[0] in _LIBRARIES


def _moves(value: Any) -> bool:
    """Whether a function is one that accelerate puts in place of a module's own, to move weights and states."""
    function = value.func if isinstance(value, functools.partial) else value
    return isinstance(function, types.FunctionType) and function.__globals__["__name__"].startswith("accelerate.")
