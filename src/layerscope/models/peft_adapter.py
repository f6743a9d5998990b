"""LoRA adapters as peft saves them: opened on the base that they name, and merged into its weights in memory.

Of `adapter_config.json` only what decides the weights is used. Which modules have an adapter, and of which rank, is
read from the tensors themselves: the names in the file may be expressions that take for ever to match.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, Field
from torch import Tensor

from layerscope.errors import LayerscopeError, ModelError, first_line, some
from layerscope.models.checkpoints import quiet
from layerscope.models.extras import attach_extras, extras
from layerscope.models.heads import HEADS, head_of
from layerscope.models.sentence_embedding import network_folder
from layerscope.models.sources import Source, fetch, parse
from layerscope.models.weight_files import folder_files
from layerscope.store import Saved, open_tensors, read_json

CONFIG, WEIGHTS, PICKLE = "adapter_config.json", "adapter_model.safetensors", "adapter_model.bin"
_PREFIX = "base_model.model."  # before the names of a network's modules
_LORA = re.compile(r"(.+)\.lora_(A|B|embedding_A|embedding_B|magnitude_vector)(\.weight)?")
_HEADS = {"SEQ_CLS": "classes", "TOKEN_CLS": "tags"}  # peft's names of tasks whose heads a base need not have
_PLAIN = re.compile(r"[\w.]+")
_INITIAL = (True, False, "gaussian")  # other ways to begin change the base's own weights
# Settings that change no weight, or that are read from the tensors.
_IGNORED = (
    *("auto_mapping", "base_model_name_or_path", "ensure_weight_tying", "exclude_modules", "inference_mode"),
    *("layers_pattern", "layers_to_transform", "lora_alpha", "lora_dropout", "megatron_core", "modules_to_save"),
    *("peft_type", "peft_version", "qalora_group_size", "r", "rank_pattern", "revision", "runtime_config"),
    *("target_modules", "task_type"),
)
_MERGED = ("alpha_pattern", "bias", "fan_in_fan_out", "init_lora_weights", "use_dora", "use_rslora")
_WAY_OUT = "merge it with the library that made it (merge_and_unload), save that, and give its folder"


class AdapterConfig(Saved):
    """The fields of an adapter_config.json that decide the weights, and where its base is."""

    model_config = ConfigDict(extra="allow")
    peft_type: str = ""
    base_model_name_or_path: str | None = None
    revision: str | None = None
    task_type: str | None = None
    auto_mapping: dict[str, str | None] | None = None
    r: int = Field(8, ge=1)
    lora_alpha: int | float = 8
    alpha_pattern: dict[str, int | float] = Field(default_factory=dict)
    bias: str = "none"
    fan_in_fan_out: bool = False
    init_lora_weights: bool | str | None = True
    use_dora: bool = False
    use_rslora: bool = False


def peft_folder(source: Source) -> Path | None:
    """Return the folder of a peft adapter, if that is what a source names, else None."""
    folder = Path(source.name)
    return folder if (folder / CONFIG).is_file() and not (folder / "config.json").is_file() else None


def read_config(folder: Path) -> AdapterConfig:
    """Return the settings of an adapter that can be merged, or raise ModelError with what cannot."""
    folder_files(folder, folder)
    config = read_json(folder / CONFIG, AdapterConfig, error=ModelError, way_out="save the adapter again with peft")
    if config.peft_type != "LORA":
        raise ModelError(
            f"{folder} is a peft adapter of the type {config.peft_type[:40] or 'unknown'}, and only LoRA is merged "
            f"into its base's weights; {_WAY_OUT}."
        )
    given = {name: value for name, value in {**dict(config), **(config.model_extra or {})}.items() if value}
    if others := sorted(set(given) - {*_IGNORED, *_MERGED}):
        raise ModelError(f"The LoRA adapter {folder} sets {some(others)}, which is not merged here; {_WAY_OUT}.")
    if config.init_lora_weights not in (*_INITIAL, None):
        raise ModelError(
            f"The LoRA adapter {folder} began as {str(config.init_lora_weights)[:40]!r}, which changes the base's own "
            f"weights; {_WAY_OUT}."
        )
    if odd := sorted(name for name in config.alpha_pattern if not _PLAIN.fullmatch(name)):
        raise ModelError(
            f"alpha_pattern of the LoRA adapter {folder} has the expression {odd[0][:60]!a}, and only plain names of "
            f"modules are read; {_WAY_OUT}."
        )
    return config


def base_name(folder: Path, config: AdapterConfig | None = None) -> str:
    """Return the name of an adapter's base, or raise ModelError where it names none, or another adapter."""
    config = read_config(folder) if config is None else config
    name = (config.base_model_name_or_path or "").strip()
    if not name:
        raise ModelError(
            f"The adapter {folder} names no base (base_model_name_or_path in {CONFIG}); write the folder or the hub id "
            "of the model that it was trained on there."
        )
    if name.startswith("random:") or peft_folder(parse(name)) is not None:
        what = "untrained" if name.startswith("random:") else "another adapter"
        raise ModelError(
            f"The adapter {folder} names {name[:200]} as its base, which is not a checkpoint but {what}; merge that "
            "first, and name the result."
        )
    return f"{name}@{config.revision}" if config.revision and not Path(name).is_dir() else name


def open_merged(folder: Path, load: Callable[[str], Any]) -> tuple[Any, Any]:
    """Return the network of an adapter's base with the adapter merged into its weights, and the base's tokenizer.

    `load` opens the base as it would be opened by itself, so that a base is checked as any other model is.
    """
    config = read_config(folder)
    name, tensors = base_name(folder, config), _tensors(folder)
    try:
        base = load(name)
    except LayerscopeError as error:
        raise ModelError(
            f"The adapter {folder} was trained on {name}, which cannot be opened here: {error} Put the base there, or "
            f"write where it is into base_model_name_or_path of {folder / CONFIG}."
        ) from error
    base.require_blocks("merging an adapter", head=False)
    wanted = _HEADS.get(config.task_type or "") or _head_of_class(config.auto_mapping)
    network = base.network
    if wanted is not None and head_of(network) != wanted:
        network = _with_head(base, name, wanted, tensors, folder)
    return _merged(network, config, tensors, folder, name), base.tokenizer


def _head_of_class(mapping: Mapping[str, str | None] | None) -> str | None:
    """Return the head of the class that an adapter without a task names, if it is one of labels; else None."""
    named = str((mapping or {}).get("base_model_class"))
    return next((head for head in _HEADS.values() if named.endswith(HEADS[head].endings)), None)


def _tensors(folder: Path) -> dict[str, Tensor]:
    """Return an adapter's tensors by the names of the network's modules; all numbers are finite."""
    if not (folder / WEIGHTS).is_file():
        if (folder / PICKLE).is_file():
            raise ModelError(
                f"The adapter {folder} has its weights only as a pickle file ({PICKLE}), which can run code when it is "
                "opened and is refused; where you trust it, load it once with peft and save it with save_pretrained, "
                f"which writes {WEIGHTS}."
            )
        raise ModelError(f"The adapter {folder} has no {WEIGHTS}, so there is nothing to merge; fetch it again.")
    file = open_tensors(folder / WEIGHTS, error=ModelError, way_out="fetch the adapter again")
    for name in file.names:
        file.finite(name, name)
        if not name.startswith(_PREFIX):
            raise ModelError(
                f"{file.path} holds {name[:80]!a}, which is not a tensor of a peft adapter; fetch it again."
            )
    tensors = {name.removeprefix(_PREFIX): file.tensor(name).clone() for name in file.names}
    if not any(_LORA.fullmatch(name) for name in tensors):
        raise ModelError(f"{file.path} holds no LoRA matrix, so there is nothing to merge; fetch it again.")
    return tensors


def _with_head(base: Any, name: str, head: str, tensors: Mapping[str, Tensor], folder: Path) -> Any:
    """Return a base's network under the head that an adapter brings with it, whose outputs that counts."""
    import transformers

    prefix = f"{base.network.base_model_prefix}."
    own = [
        tensor
        for key, tensor in tensors.items()
        if tensor.dim() == 2 and not _LORA.fullmatch(key) and not key.startswith(prefix)
    ]
    if not own:
        raise ModelError(
            f"The adapter {folder} is for {HEADS[head].tasks}, and neither it nor its base {name} has a head for that; "
            "save the adapter with its head (modules_to_save)."
        )
    config = copy.deepcopy(base.network.config)
    config.num_labels = min(len(tensor) for tensor in own)
    with quiet():
        network, info = getattr(transformers, HEADS[head].opener).from_pretrained(
            network_folder(fetch(parse(name))),
            config=config,
            dtype=base.network.dtype,
            use_safetensors=True,
            trust_remote_code=False,
            local_files_only=True,
            output_loading_info=True,
        )
    if made_up := sorted(set(info["missing_keys"]) - set(tensors)):
        raise ModelError(
            f"{some(made_up)} of a model for {HEADS[head].tasks} {'is' if len(made_up) == 1 else 'are'} neither in the "
            f"adapter {folder} nor in its base {name}, and would be random numbers; save the adapter with its whole "
            "head (modules_to_save)."
        )
    attach_extras(network, replace(extras(base.network), tensors={}, named=None, made_up={}, embedding=None))
    return network.eval().to(base.device)


def _merged(network: Any, config: AdapterConfig, tensors: Mapping[str, Tensor], folder: Path, name: str) -> Any:
    """Return the network with what an adapter's matrices add to its weights, and the tensors that it saved whole."""
    from peft import LoraConfig, get_peft_model, set_peft_model_state_dict

    matches = {key: match for key in tensors if (match := _LORA.fullmatch(key))}
    ranks = {match[1]: tensors[key].shape[0] for key, match in matches.items() if match[2] in ("A", "embedding_A")}
    modules, own = dict(network.named_modules()), network.state_dict()
    strange = sorted({match[1] for match in matches.values()} - set(modules))
    strange += sorted(key for key in tensors if key not in matches and key not in own)
    if strange:
        raise ModelError(
            f"The adapter {folder} does not fit its base {name} ({type(network).__name__}), which has no "
            f"{strange[0][:80]}; write the model that it was trained on into base_model_name_or_path of "
            f"{folder / CONFIG}."
        )
    whole = {key: tensor for key, tensor in tensors.items() if key not in matches}
    for key, tensor in whole.items():
        if own[key].shape != tensor.shape:
            raise _misfit(folder, name, f"{key} is {tuple(own[key].shape)} there and {tuple(tensor.shape)} here")
    alpha: Any = config.lora_alpha
    settings = LoraConfig(
        r=min(ranks.values(), default=1),
        lora_alpha=alpha,  # which may have a fraction, whatever peft's annotation says
        target_modules=sorted(ranks),
        rank_pattern={re.escape(module): rank for module, rank in ranks.items()},
        alpha_pattern=dict(config.alpha_pattern),
        fan_in_fan_out=config.fan_in_fan_out,
        use_rslora=config.use_rslora,
        use_dora=config.use_dora,
        lora_dropout=0.0,
    )
    lora = {f"{_PREFIX}{key}": tensors[key] for key in matches}
    try:
        wrapped = get_peft_model(network, settings)
        result: Any = set_peft_model_state_dict(wrapped, lora)
        lost = [*result.unexpected_keys, *(key for key in result.missing_keys if "lora_" in key)]
        if lost:
            raise _misfit(folder, name, f"{lost[0][:100]} is on one side alone")
        merged: Any = wrapped.merge_and_unload(safe_merge=True)
    except LayerscopeError:
        raise
    except Exception as error:  # peft refuses matrices that do not fit in as many ways as there are layers
        raise _misfit(folder, name, first_line(error)) from error
    if whole:
        merged.load_state_dict({**merged.state_dict(), **whole})
    for parameter in merged.parameters():
        parameter.requires_grad_(True)  # peft froze them
    for key in [key for key in vars(merged) if key in ("peft_config", "_hf_peft_config_loaded")]:
        delattr(merged, key)
    merged.name_or_path = str(folder)
    return merged.eval()


def _misfit(folder: Path, name: str, why: str) -> ModelError:
    return ModelError(
        f"The adapter {folder} does not fit its base {name} ({why}); write the model that it was trained on into "
        f"base_model_name_or_path of {folder / CONFIG}."
    )
