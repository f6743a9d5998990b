"""Fingerprints of models and tokenizers: hashes of everything that can change an answer, as it is at this moment.

A `Scan` turns a network, a tokenizer or any value in them into text, and lists what it cannot read, such as a function
of the user's: a result that depends on that has no key. Tensors are hashed in several threads; from a GPU they come
through pinned memory, one piece while the piece before is hashed.
"""

from __future__ import annotations

import functools
import json
import os
import threading
import types
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import asdict
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import xxhash
from torch import Tensor, nn
from torch.nn.modules.module import _global_forward_hooks, _global_forward_pre_hooks

from layerscope.models.devices import weight
from layerscope.models.lineage import converted_from
from layerscope.store import NoKey, digest

if TYPE_CHECKING:
    from layerscope.models.load import Model


_PIECE = 1 << 24  # bytes that are copied at once: little enough to be hashed out of a cache
_THREADS = 8  # one hashes about 10 GB per second, and a GPU sends 50
_SMALL = 1 << 20  # bytes that are hashed before a thread has begun

Later = Callable[[], str]


class _Buffers(threading.local):
    """Two pieces of pinned memory for each thread, kept since allocating them takes longer than filling them."""

    pair: tuple[Tensor, ...] = ()

    def get(self, size: int) -> tuple[Tensor, ...]:
        """Return the two pieces, each of at least `size` bytes."""
        if not self.pair or len(self.pair[0]) < size:
            self.pair = tuple(torch.empty(size, dtype=torch.uint8, pin_memory=True) for _ in range(2))
        return self.pair


def bytes_hash(tensor: Tensor, buffers: _Buffers | None = None) -> str:
    """Return a hash of a tensor's bytes, which is the same on every device."""
    flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
    whole = xxhash.xxh3_128()
    pinned = flat.is_cuda and len(flat) > _PIECE // 16
    for piece in _through_pinned(flat, buffers or _Buffers()) if pinned else (flat.cpu(),):
        whole.update(piece.numpy().data)
    return whole.hexdigest()


@contextmanager
def hashing_ahead() -> Iterator[Callable[[Tensor], Later]]:
    """Give a function that starts to hash a tensor in another thread and returns a function that waits for the hash."""
    buffers = _Buffers()

    def hash_on(stream: torch.cuda.Stream | None, tensor: Tensor) -> str:
        with nullcontext() if stream is None else torch.cuda.stream(stream):
            return bytes_hash(tensor, buffers)

    with ThreadPoolExecutor(max(1, min(_THREADS, os.cpu_count() or 1))) as threads:

        def begin(tensor: Tensor) -> Later:
            if tensor.nbytes <= _SMALL:
                digest = bytes_hash(tensor)
                return lambda: digest
            # Another thread has its own queue of a GPU's work. On the caller's, the tensor is read after everything
            # that the caller has asked of it before.
            stream = torch.cuda.current_stream(tensor.device) if tensor.is_cuda else None
            future: Future[str] = threads.submit(hash_on, stream, tensor)
            return future.result

        yield begin


def _through_pinned(flat: Tensor, buffers: _Buffers) -> Iterator[Tensor]:
    """Yield the bytes of a tensor on a GPU piece by piece; the next piece is copied while the caller reads one."""
    pair = buffers.get(_PIECE)
    ahead: tuple[Tensor, torch.cuda.Event] | None = None
    with torch.cuda.device(flat.device):
        for number, part in enumerate(flat.split(_PIECE)):
            target, arrived = pair[number % 2][: len(part)], torch.cuda.Event()
            target.copy_(part, non_blocking=True)
            arrived.record()
            if ahead is not None:
                ahead[1].synchronize()
                yield ahead[0]
            ahead = target, arrived
    if ahead is not None:
        ahead[1].synchronize()
        yield ahead[0]


_CONFIG_VOLATILE = ("_name_or_path", "architectures", "transformers_version", "dtype", "torch_dtype", "use_cache")
# Libraries whose code is known by its name; other code may be changed and keep its name.
_LIBRARIES = {"torch", "transformers", "peft", "accelerate", "layerscope", "tokenizers", "builtins", "collections"}
# Attributes of modules that say where a network comes from or what it has been through, and never what it answers.
_MODULE_VOLATILE = {
    *("training", "name_or_path", "model_tags", "warnings_issued", "generation_config", "max_seq_len_cached"),
    *("gradient_checkpointing", "is_gradient_checkpointing", "config", "hf_device_map"),
}
_ADAPTER_STATE = ("_active_adapter", "_disable_adapters")  # which of peft's adapters answer
_PEFT_VOLATILE = ("base_model_name_or_path", "revision", "inference_mode", "peft_version")
# Classes and functions of layerscope that were renamed or moved, with the names that keys are made of: results that the
# store has stay valid.
_NAMES_IN_KEYS = {
    "layerscope.models.wrap.WrappedNetwork": "layerscope.models.own.OwnNetwork",
    "layerscope.models.text_reader.FunctionReader": "layerscope.models.readers.FunctionReader",
    "layerscope.models.surgery._squeezed_forward": "layerscope.models.rewiring._squeezed_forward",
    "layerscope.models.surgery._joined_forward": "layerscope.models.rewiring._joined_forward",
    "layerscope.models.elmo.ElmoOptions": "layerscope.models.elmo_options.ElmoOptions",
    "layerscope.models.elmo.CharacterOptions": "layerscope.models.elmo_options.CharacterOptions",
    "layerscope.models.elmo.StackOptions": "layerscope.models.elmo_options.StackOptions",
    "layerscope.models.elmo.ProjectedLSTM": "layerscope.models.elmo_recurrent.ProjectedLSTM",
    "layerscope.models.elmo.RecurrentLayer": "layerscope.models.elmo_recurrent.RecurrentLayer",
}


_HASHED: ContextVar[dict[int, tuple[Any, str, list[str]]] | None] = ContextVar("hashed", default=None)


@contextmanager
def hashed_once() -> Iterator[None]:
    """Hash each network once while the block runs, in which nothing changes one: of 7 B parameters that takes a second.

    It is for work that needs many keys of one network, and between them only takes blocks out of it for a while.
    """
    token = _HASHED.set({})
    try:
        yield
    finally:
        _HASHED.reset(token)


class Scan:
    """Turns a network or a tokenizer into text; what it cannot read is listed in `unknown`."""

    def __init__(self) -> None:
        self.unknown: list[str] = []
        self._seen: dict[int, Any] = {}

    def network(self, network: Any) -> str:
        """Return a hash of a network: config, every tensor, and every module's class, settings and functions."""
        hashed = _HASHED.get()
        if hashed is not None and id(network) in hashed:
            _, known, unknown = hashed[id(network)]
            self.unknown += unknown
            return known
        before = len(self.unknown)
        parts = [self._config(network.config), *self._tensors(network), *self._modules(network, network.config)]
        found = digest(*parts)
        if hashed is not None:
            hashed[id(network)] = network, found, self.unknown[before:]  # held, so that no other gets its id
        return found

    def weights(self, network: nn.Module) -> str:
        """Return a hash of every tensor."""
        return digest(*self._tensors(network))

    def modules(self, network: nn.Module, config: Any) -> str:
        """Return a hash of every module's class, settings, functions and adapters."""
        return digest(*self._modules(network, config))

    def _tensors(self, network: nn.Module) -> list[str]:
        """Return one text per parameter and buffer: its name, type, shape and hash."""
        with hashing_ahead() as begin:
            parts = []
            for name, tensor in sorted([*network.named_parameters(), *network.named_buffers()], key=itemgetter(0)):
                held = weight(network, name, tensor)
                if held is None:
                    self.unknown.append(f"no numbers for {name}")
                    continue
                # Offloaded weights are read one after the other, so that few of them are in memory at once.
                later = begin(held) if held is tensor else functools.partial(str, bytes_hash(held))
                parts.append((f"{name} {held.dtype} {tuple(held.shape)}", later))
            return [f"{text} {later()}" for text, later in parts]

    def _modules(self, network: nn.Module, config: Any) -> list[str]:
        """Return one text per module: its name and what `_module` says of it."""
        parts = [f"{name} {self._module(name, module, config)}" for name, module in network.named_modules()]
        if _global_forward_hooks or _global_forward_pre_hooks:
            self.unknown.append("a forward hook for all modules")
        return parts

    def _config(self, config: Any) -> str:
        return self.content({k: v for k, v in config.to_dict().items() if k not in _CONFIG_VOLATILE}, "the config")

    def _module(self, name: str, module: nn.Module, whole: Any) -> str:
        """Return a module's class and attributes, and its config where that differs from the whole network's."""
        place = name or "the network"
        hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
        if not all(_of_library(hook) for some in hooks for hook in some.values()):
            self.unknown.append(f"a hook on {place}")
        attributes = {
            key: value
            for key, value in vars(module).items()
            if (not key.startswith("_") or key in _ADAPTER_STATE)
            and key not in _MODULE_VOLATILE
            and not _moves_weights(value)
        }
        config = whole if whole is None else getattr(module, "config", whole)
        differing = ""
        if config is not whole and hasattr(config, "to_dict"):
            text = self._config(config)
            differing = text if text != self._config(whole) else ""
        return f"{self.kind(module, place)} {differing} {self.content(attributes, place)}"

    def kind(self, value: Any, place: str) -> str:
        """Return the class of a value; one of no library is noted as unknown, since its code may change."""
        kind = f"{type(value).__module__}.{type(value).__qualname__}"
        if not _of_library(type(value)):
            self.unknown.append(f"an object of {kind} in {place}")
        return _NAMES_IN_KEYS.get(kind, kind)

    def content(self, value: Any, place: str = "it") -> str:
        """Return a value as text, which is the same for equal values in any process."""
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
        return _NAMES_IN_KEYS.get(name, name)

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
        has_state = hasattr(value, "__dict__") and not type(value).__module__.startswith("torch")
        return f"{kind} {self.content(dict(vars(value)), place)}" if has_state else kind


def _of_library(code: Callable[..., Any]) -> bool:
    """Return whether a class, a function or a hook is a library's, so that its name tells what it does."""
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


def _moves_weights(value: Any) -> bool:
    """Return whether a function is one that accelerate puts in place of a module's own, to move weights and states."""
    function = value.func if isinstance(value, functools.partial) else value
    return isinstance(function, types.FunctionType) and function.__globals__["__name__"].startswith("accelerate.")


# Attributes of tokenizers that do not change which ids a text becomes here: padding and lengths are layerscope's own,
# and `cache` is what a slow tokenizer remembers of earlier texts.
_TOKENIZER_VOLATILE = {
    *("name_or_path", "init_kwargs", "init_inputs", "files_loaded", "verbose", "deprecation_warnings", "backend"),
    *("chat_template", "response_template", "chat_control_tokens", "model_max_length", "padding_side", "_vocab"),
    *("_tokenizer", "_in_target_context_manager", "_processor_class", "_should_update_post_processor"),
    *("_pad_token_type_id", "clean_up_tokenization_spaces", "sp_model_kwargs", "cache"),
    "clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output",
}
_NAMED_TOKENS = ("_special_tokens_map", "_extra_special_tokens")


def fingerprint(model: Model) -> str:
    """Return a hash of the network as it is now, so that weights edited in place make another model."""
    return Scan().network(model.network)


def model_spec(model: Model) -> dict[str, Any]:
    """Return what determines a model's answers, or raise NoKey where something in it cannot be fingerprinted."""
    scan = Scan()
    weights = scan.network(model.network)
    if scan.unknown:
        raise NoKey(f"{model.name} has {scan.unknown[0]}, which cannot be fingerprinted")
    tokenizer = None if model.tokenizer is None else tokenizer_fingerprint(model.tokenizer)
    parts = {"weights": weights, "dtype": str(model.network.dtype), "tokenizer": tokenizer}
    return {**parts, "anatomy": digest(scan.content(asdict(model.architecture)))}


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """Return a hash of everything that decides which ids a text becomes, or raise NoKey where that cannot be told."""
    scan = Scan()
    parts = [scan.kind(tokenizer, "the tokenizer")]
    if getattr(tokenizer, "is_fast", False):
        state = json.loads(tokenizer.backend_tokenizer.to_str())
        for setting in ("truncation", "padding"):  # what the last call set, not what the tokenizer is
            state.pop(setting, None)
        parts.append(json.dumps(state, sort_keys=True))
    attributes = {k: v for k, v in vars(tokenizer).items() if k not in _TOKENIZER_VOLATILE and not k.endswith("_file")}
    # These hold texts or added tokens, depending on how the tokenizer was opened; added tokens are scanned elsewhere.
    for name in _NAMED_TOKENS:
        if named := attributes.get(name):
            by_name = isinstance(named, Mapping)
            attributes[name] = {k: str(v) for k, v in named.items()} if by_name else list(map(str, named))
    parts.append(scan.content(attributes))
    if scan.unknown:
        raise NoKey(f"the tokenizer has {scan.unknown[0]}, which cannot be fingerprinted")
    return digest(*parts)


def tokenizer_identity(tokenizer: Any) -> str:
    """Return a text that is equal for tokenizers which read the same tokens; one that has no key is only itself."""
    try:
        return tokenizer_fingerprint(tokenizer)
    except NoKey:
        return digest(f"{type(tokenizer).__qualname__} at {id(tokenizer)}")


def described(model: Model) -> dict[str, Any]:
    """Return a description of a model for provenance: names, class, size, float type, hash of the weights, revision."""
    description = {
        "name": model.name,
        "label": model.label,
        "class": type(model.network).__name__,
        "blocks": model.depth,
        "width": model.width,
        "dtype": str(model.network.dtype).removeprefix("torch."),
        "weights": fingerprint(model),
        "revision": getattr(model.network.config, "_commit_hash", None),
        "converted": converted_from(model.network),
    }
    return {name: value for name, value in description.items() if value is not None}
