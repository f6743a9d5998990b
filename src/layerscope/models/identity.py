"""What a model is, as a short text: its class, its config and every weight."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import torch
import xxhash

from layerscope.store import digest

if TYPE_CHECKING:
    from layerscope.models.load import Model

_VOLATILE = ("_name_or_path", "architectures", "transformers_version", "dtype", "torch_dtype", "use_cache")


def fingerprint(model: Model) -> str:
    """A hash of the network as it is now, so that weights edited in place make another model."""
    network = model.network
    config = {k: v for k, v in network.config.to_dict().items() if k not in _VOLATILE}
    parts = [type(network).__name__, json.dumps(config, sort_keys=True, default=str)]
    for name, tensor in sorted(network.state_dict().items()):
        parts.append(f"{name} {tensor.dtype} {tuple(tensor.shape)} {_bytes_hash(tensor)}")
    return digest(*parts)


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """A hash of everything that decides which ids a text becomes."""
    if getattr(tokenizer, "is_fast", False):
        state = json.loads(tokenizer.backend_tokenizer.to_str())
        for setting in ("truncation", "padding"):  # what the last call set, not what the tokenizer is
            state.pop(setting, None)
        content = json.dumps(state, sort_keys=True)
    else:
        content = json.dumps(tokenizer.get_vocab(), sort_keys=True)
    settings = [str(getattr(tokenizer, name, None)) for name in ("truncation_side", "model_input_names")]
    return digest(type(tokenizer).__name__, content, *settings)


def _bytes_hash(tensor: torch.Tensor) -> str:
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    return xxhash.xxh3_128(flat.view(torch.uint8).numpy().data).hexdigest()
