"""Embeddings of sentence-transformers: the modules beside an encoder that make them of states, and their settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load as load_tensors
from torch import Tensor, nn

from layerscope.errors import ModelError
from layerscope.store import parse_json

MODULES = "modules.json"
_SETTINGS = ("config_sentence_transformers.json", "sentence_bert_config.json")
_OTHER_SETTINGS = ("roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")  # old names of the second
_NO_LIMIT = 10**9  # tokens; transformers writes 1e30 where a tokenizer has no limit
_LARGEST = 1 << 30  # bytes of a module's files, which are kept in memory
MODES = ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")
_OLD_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}

Step = Callable[[Tensor], Tensor]  # (texts, width) -> (texts, width')


@dataclass(frozen=True)
class Embedding:
    """The rule by which states become one embedding per text, and the files that define it."""

    modes: tuple[str, ...] = ("mean",)  # of pooling; their results are put side by side
    include_prompt: bool = True
    steps: tuple[Step, ...] = ()  # after pooling
    max_length: int | None = None
    lower_case: bool = False
    prompt: str = ""  # put before every text
    files: Mapping[str, bytes] = field(default_factory=dict)  # by their path in the folder; none for a bare encoder
    unknown: str = ""  # a module that layerscope cannot run

    def pooled(self, states: Tensor, mask: Tensor, prompt_length: int = 0) -> Tensor:
        """Return embeddings (texts, width') in float32 of states (texts, time, width) with padding on the right."""
        if self.unknown:
            raise ModelError(
                f"Its embeddings go through a {self.unknown}, which layerscope cannot run; compute them with "
                "sentence-transformers. Cutting and saving keep the module as it is."
            )
        states, real = states.float(), mask.float()
        if prompt_length and not self.include_prompt:
            real = real.clone()
            real[:, :prompt_length] = 0
        vector = torch.cat([_POOLED[mode](states, real) for mode in self.modes], dim=-1)
        for step in self.steps:
            vector = step(vector)
        return vector

    def write(self, folder: Path) -> None:
        """Write the files into a folder, beside the network."""
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)

    def spec(self) -> dict[str, Any]:
        """Return what determines embeddings, for keys of the store."""
        import hashlib

        files = {name: hashlib.sha256(content).hexdigest() for name, content in self.files.items()}
        return {"modes": list(self.modes), "files": files}


def _last(states: Tensor, real: Tensor) -> Tensor:
    places = torch.arange(real.shape[1], device=real.device)
    return states[torch.arange(len(states)), (real * (places + 1)).argmax(dim=1)]


def _mean(states: Tensor, real: Tensor, power: float = 1.0) -> Tensor:
    return (states * real[..., None]).sum(dim=1) / real.sum(dim=1, keepdim=True).clamp(min=1e-9) ** power


_POOLED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cls": lambda states, real: states[torch.arange(len(states)), real.argmax(dim=1)],
    "max": lambda states, real: states.masked_fill(real[..., None] == 0, -torch.inf).amax(dim=1),
    "mean": _mean,
    "mean_sqrt_len_tokens": lambda states, real: _mean(states, real, 0.5),
    "weightedmean": lambda states, real: _mean(states, real * (torch.arange(real.shape[1], device=real.device) + 1)),
    "lasttoken": _last,
}


def is_embedding_folder(folder: Path) -> bool:
    """Return whether sentence-transformers saved the folder."""
    return (folder / MODULES).is_file()


def network_folder(folder: Path) -> Path:
    """Return where in a folder the network lies: directly, or in a subfolder that sentence-transformers made."""
    if not is_embedding_folder(folder):
        return folder
    return folder / str(_modules(folder)[0].get("path") or "")


def read_embedding(folder: Path, name: str) -> Embedding:
    """Read how a folder of sentence-transformers makes embeddings."""
    modules = _modules(folder)
    inside = network_folder(folder)
    files = {path: (folder / path).read_bytes() for path in _SETTINGS[:1] if (folder / path).is_file()}
    # The settings of how texts are read have had several file names.
    names = (_SETTINGS[1], *(f"sentence_{name}_config.json" for name in _OTHER_SETTINGS))
    path = next((inside / name for name in names if (inside / name).is_file()), None)
    texts = {} if path is None else _json(path.read_bytes(), str(inside))
    if texts:
        files[_SETTINGS[1]] = json.dumps(texts, indent=1).encode()
    listed = [{**module, "path": "" if k == 0 else module.get("path", "")} for k, module in enumerate(modules)]
    files[MODULES] = json.dumps(listed, indent=2).encode()
    modes: tuple[str, ...] | None = None
    include_prompt, steps, unknown = True, list[Step](), ""
    for module in modules[1:]:
        place, kind = str(module.get("path", "")), str(module.get("type", "")).rpartition(".")[2]
        content = _files(folder, place, name)
        files.update(content)
        settings = _json(content.get(f"{place}/config.json"), name)
        if kind == "Pooling" and modes is None:
            modes, include_prompt = _modes(settings, name), bool(settings.get("include_prompt", True))
        elif modes is not None and kind in _STEPS:
            weights = content.get(f"{place}/model.safetensors")
            try:
                steps.append(_STEPS[kind](settings, {} if weights is None else load_tensors(weights)))
            except (KeyError, ValueError, AttributeError, TypeError):
                unknown = unknown or kind
        elif kind != "Dropout":
            unknown = unknown or kind
    general = _json(files.get(_SETTINGS[0]), name)
    prompts, default = general.get("prompts") or {}, general.get("default_prompt_name")
    return Embedding(
        modes=modes or ("mean",),
        include_prompt=include_prompt,
        steps=tuple(steps),
        max_length=texts.get("max_seq_length") or _tokenizer_limit(inside),
        lower_case=bool(texts.get("do_lower_case", False)),
        prompt=str(prompts.get(default, "")) if default else "",
        files=files,
        unknown=unknown or ("" if modes else "network without pooling"),
    )


def _modules(folder: Path) -> list[dict[str, Any]]:
    """Return the list of modules in a folder, or raise ModelError where it is damaged or leads out of the folder."""
    try:
        modules = parse_json((folder / MODULES).read_bytes())
        if isinstance(modules, list) and modules and all(isinstance(module, dict) for module in modules):
            for module in modules:
                path = Path(str(module.get("path") or ""))
                if path.is_absolute() or ".." in path.parts:
                    raise ValueError(f"the path {path} leads out of the folder")
            return modules
        raise ValueError("it is not a list of modules")
    except ValueError as error:
        raise ModelError(
            f"The {MODULES} of {folder} cannot be read ({error}); fetch the model again, or remove the file to open "
            "it as a bare encoder."
        ) from error


def _tokenizer_limit(folder: Path) -> int | None:
    """Return the longest text in tokens by a tokenizer's settings, where sentence-transformers 6 keeps its limit."""
    path = folder / "tokenizer_config.json"
    most = _json(path.read_bytes(), str(folder)).get("model_max_length") if path.is_file() else None
    return int(most) if isinstance(most, (int, float)) and 0 < most < _NO_LIMIT else None


def _files(folder: Path, place: str, name: str) -> dict[str, bytes]:
    """Return the files of a module's folder by their paths, or raise ModelError where they are too large."""
    paths = [p for p in sorted((folder / place).rglob("*")) if p.is_file()] if place else []
    if sum(path.stat().st_size for path in paths) > _LARGEST:
        raise ModelError(f"The module {place} of {name} is larger than a GiB; open the encoder without {MODULES}.")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _json(content: bytes | None, name: str) -> dict[str, Any]:
    """Return the object in a settings file, empty where there is no file; raise ModelError where it is not JSON."""
    try:
        value = parse_json(content) if content else {}
    except ValueError as error:
        raise ModelError(f"A settings file of {name} is not JSON ({error}); fetch the model again.") from error
    return value if isinstance(value, dict) else {}


def _modes(settings: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """Return the modes of pooling that settings name, in the new way or the old one."""
    named = settings.get("pooling_mode")
    if named is None:
        named = [mode for key, mode in _OLD_MODES.items() if settings.get(key)] or ["mean"]
    modes = (named,) if isinstance(named, str) else tuple(named)
    if wrong := [mode for mode in modes if mode not in MODES]:
        raise ModelError(f"{name} pools by {wrong[0]!r}, which is not known; known are {', '.join(MODES)}.")
    return modes


def _dense(settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Step:
    """Return a linear layer with its activation, or raise ValueError where it is not an ordinary one."""
    if settings.get("use_residual") or settings.get("module_input_name", "sentence_embedding") != "sentence_embedding":
        raise ValueError("another way through the layer")
    weight, bias = tensors["linear.weight"].float(), tensors.get("linear.bias")
    name = str(settings.get("activation_function") or "torch.nn.modules.linear.Identity")
    if not name.startswith("torch.nn."):
        raise ValueError("a function of somebody's own")
    activation = getattr(nn, name.rpartition(".")[2])()

    def run(vector: Tensor) -> Tensor:
        offset = None if bias is None else bias.float().to(vector.device)
        return activation(nn.functional.linear(vector, weight.to(vector.device), offset))

    return run


def _norm(settings: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Step:
    """Return a layer norm."""
    weight, bias = tensors["norm.weight"].float(), tensors["norm.bias"].float()
    return lambda vector: nn.functional.layer_norm(
        vector, weight.shape, weight.to(vector.device), bias.to(vector.device)
    )


_STEPS: dict[str, Callable[[Mapping[str, Any], Mapping[str, Tensor]], Step]] = {
    "Dense": _dense,
    "LayerNorm": _norm,
    "Normalize": lambda _, __: lambda vector: nn.functional.normalize(vector, dim=-1),
}
