"""What a model and a tokenizer are, as short texts: everything that can change an answer, as it is at this moment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from layerscope.models.lineage import converted_from
from layerscope.models.scanning import Scan
from layerscope.store import NoKey, digest

if TYPE_CHECKING:
    from layerscope.models.load import Model

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
    """A hash of the network as it is now, so that weights edited in place make another model."""
    return Scan().network(model.network)


def model_spec(model: Model) -> dict[str, Any]:
    """What decides a model's answers; raises NoKey where something in it cannot be fingerprinted."""
    scan = Scan()
    weights = scan.network(model.network)
    if scan.unknown:
        raise NoKey(f"{model.name} has {scan.unknown[0]}, which cannot be fingerprinted")
    tokenizer = None if model.tokenizer is None else tokenizer_fingerprint(model.tokenizer)
    parts = {"weights": weights, "dtype": str(model.network.dtype), "tokenizer": tokenizer}
    return {**parts, "anatomy": digest(scan.content(asdict(model.anatomy)))}


def tokenizer_fingerprint(tokenizer: Any) -> str:
    """A hash of everything that decides which ids a text becomes; raises NoKey where that cannot be told."""
    scan = Scan()
    parts = [scan.kind(tokenizer, "the tokenizer")]
    if getattr(tokenizer, "is_fast", False):
        state = json.loads(tokenizer.backend_tokenizer.to_str())
        for setting in ("truncation", "padding"):  # what the last call set, not what the tokenizer is
            state.pop(setting, None)
        parts.append(json.dumps(state, sort_keys=True))
    kept = {k: v for k, v in vars(tokenizer).items() if k not in _TOKENIZER_VOLATILE and not k.endswith("_file")}
    for name in _NAMED_TOKENS:  # texts or added tokens, as it happens; what else they are stands among the added ones
        named = kept.get(name)
        if named:
            kept[name] = {k: str(v) for k, v in named.items()} if isinstance(named, Mapping) else list(map(str, named))
    parts.append(scan.content(kept))
    if scan.unknown:
        raise NoKey(f"the tokenizer has {scan.unknown[0]}, which cannot be fingerprinted")
    return digest(*parts)


def tokenizer_identity(tokenizer: Any) -> str:
    """Equal for tokenizers that read the same tokens; one that cannot be fingerprinted is only itself."""
    try:
        return tokenizer_fingerprint(tokenizer)
    except NoKey:
        return digest(f"{type(tokenizer).__qualname__} at {id(tokenizer)}")


def described(model: Model) -> dict[str, Any]:
    """What a model is, for provenance: its name, class, size, its weights' hash, and the hub's revision if any."""
    about = {
        "name": model.name,
        "class": type(model.network).__name__,
        "blocks": model.depth,
        "width": model.width,
        "weights": fingerprint(model),
        "revision": getattr(model.network.config, "_commit_hash", None),
        "converted": converted_from(model.network),
    }
    return {name: value for name, value in about.items() if value is not None}
