"""Embeddings of sentence-transformers: the modules beside an encoder that make them of states, and their settings."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Annotated, Any, Literal, Self, TypeVar, get_args

import torch
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    RootModel,
    model_validator,
)
from safetensors.torch import save as save_tensors
from torch import Tensor, nn

from layerscope.errors import ModelError
from layerscope.models.weight_files import folder_files
from layerscope.store import Saved, open_tensors, read_json, read_object, read_value, shaped

MODULES = "modules.json"
_SETTINGS = ("config_sentence_transformers.json", "sentence_bert_config.json")
_OTHER_SETTINGS = ("roberta", "distilbert", "camembert", "albert", "xlm-roberta", "xlnet")  # old names of the second
_LIBRARY = "sentence_transformers."  # how the names of its own modules begin
_NO_LIMIT = 10**9  # tokens; transformers writes 1e30 where a tokenizer has no limit
_LARGEST = 1 << 30  # bytes of a module's files, which are kept in memory
_LONGEST_PATH = 255  # bytes, as file systems have it
_WAY_OUT = f"fetch the model again, or remove its {MODULES} to open it as a bare encoder"
Mode = Literal["cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken"]
MODES: tuple[str, ...] = get_args(Mode)
_OLD_MODES = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
    "pooling_mode_lasttoken": "lasttoken",
}
# Activations of torch.nn without weights of their own that act on each number by itself.
_ACTIVATIONS = (
    *("CELU", "ELU", "GELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "Identity", "LeakyReLU"),
    *("LogSigmoid", "Mish", "ReLU", "ReLU6", "SELU", "SiLU", "Sigmoid", "Softplus", "Softshrink", "Softsign"),
    *("Tanh", "Tanhshrink"),
)
_EMBEDDING = "sentence_embedding"  # what the library calls the vector that pooling makes

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


# Models go to other processes with their embeddings, so that what is kept in one are named classes of this module: no
# function inside another one can be pickled.
@dataclass(frozen=True)
class _Linear:
    """A linear layer with its activation."""

    weight: Tensor
    bias: Tensor | None
    activation: nn.Module | None = None

    def __call__(self, vector: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.to(vector.device)
        result = nn.functional.linear(vector, self.weight.to(vector.device), bias)
        return result if self.activation is None else self.activation(result)


@dataclass(frozen=True)
class _Norm:
    """A layer norm."""

    weight: Tensor
    bias: Tensor

    def __call__(self, vector: Tensor) -> Tensor:
        weight, bias = self.weight.to(vector.device), self.bias.to(vector.device)
        return nn.functional.layer_norm(vector, weight.shape, weight, bias)


def _unit(vector: Tensor) -> Tensor:
    return nn.functional.normalize(vector, dim=-1)


_POOLED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "cls": lambda states, real: states[torch.arange(len(states)), real.argmax(dim=1)],
    "max": lambda states, real: states.masked_fill(real[..., None] == 0, -torch.inf).amax(dim=1),
    "mean": _mean,
    "mean_sqrt_len_tokens": lambda states, real: _mean(states, real, 0.5),
    "weightedmean": lambda states, real: _mean(states, real * (torch.arange(real.shape[1], device=real.device) + 1)),
    "lasttoken": _last,
}


def with_dense(embedding: Embedding, modes: tuple[str, ...], weight: Tensor, bias: Tensor) -> Embedding:
    """Return an embedding with other pooling, and a linear map between that and all that follows, in its files too.

    `weight` is (width', width of the pooled states), and `bias` (width'). A bare encoder's embedding gets files.
    """
    weight, bias = (part.detach().float().cpu().contiguous() for part in (weight, bias))
    files = dict(embedding.files)
    bare = [{"path": "", "type": f"{_LIBRARY}models.Transformer"}]
    bare += [{"path": "1_Pooling", "type": f"{_LIBRARY}models.Pooling"}]
    listed = json.loads(files[MODULES]) if MODULES in files else bare
    at = next(k for k, entry in enumerate(listed) if entry["type"].endswith(".Pooling"))
    pooling, taken = listed[at]["path"], {entry["path"] for entry in listed}
    place = next(name for k in range(2, 99) if (name := f"{k}_Dense") not in taken)
    listed.insert(at + 1, {"path": place, "type": f"{_LIBRARY}models.Dense"})
    numbered = [{"idx": k, "name": str(k), "path": e["path"], "type": e["type"]} for k, e in enumerate(listed)]
    settings: dict[str, dict[str, Any]] = {
        pooling: {
            "word_embedding_dimension": weight.shape[1] // len(modes),
            **{key: mode in modes for key, mode in _OLD_MODES.items()},
            "include_prompt": embedding.include_prompt,
        },
        place: {
            "in_features": weight.shape[1],
            "out_features": weight.shape[0],
            "bias": True,
            "activation_function": "torch.nn.modules.linear.Identity",
        },
    }
    files |= {f"{name}/{_CONFIG}": json.dumps(value, indent=2).encode() for name, value in settings.items()}
    files[MODULES] = json.dumps(numbered, indent=2).encode()
    files[f"{place}/{_WEIGHTS}"] = save_tensors({"linear.weight": weight, "linear.bias": bias})

    return replace(embedding, modes=modes, steps=(_Linear(weight, bias), *embedding.steps), files=files)


def is_embedding_folder(folder: Path) -> bool:
    """Return whether sentence-transformers saved the folder."""
    return (folder / MODULES).is_file()


def network_folder(folder: Path) -> Path:
    """Return where in a folder the network lies: directly, or in a subfolder that sentence-transformers made."""
    return folder / _modules(folder)[0].path if is_embedding_folder(folder) else folder


def read_embedding(folder: Path, name: str, width: int) -> Embedding:
    """Read how a folder of sentence-transformers makes embeddings of states of this width.

    Whatever is not as the library itself would take it raises ModelError; modules that only layerscope does not know
    are kept, and named in `unknown`.
    """
    modules = _modules(folder)
    inside = folder / modules[0].path
    # The settings of how texts are read have had several file names.
    names = (_SETTINGS[1], *(f"sentence_{name}_config.json" for name in _OTHER_SETTINGS))
    texts = next((inside / name for name in names if (inside / name).is_file()), inside / _SETTINGS[1])
    reading, general = _settings(texts, _Texts), _settings(folder / _SETTINGS[0], _General)
    files = {path: (folder / path).read_bytes() for path in _SETTINGS[:1] if (folder / path).is_file()}
    if texts.is_file() and (kept := read_object(texts, error=ModelError, way_out=_WAY_OUT)):
        files[_SETTINGS[1]] = json.dumps(kept, indent=1).encode()
    raw = read_value(folder / MODULES, error=ModelError, way_out=_WAY_OUT)
    listed = [
        {**entry, "path": module.path if k else ""} for k, (entry, module) in enumerate(zip(raw, modules, strict=True))
    ]
    files[MODULES] = json.dumps(listed, indent=2).encode()
    pooling: _Pooling | None = None
    steps, unknown = list[Step](), "" if modules[0].kind == "Transformer" else modules[0].kind
    for module in modules[1:]:
        place = folder / module.path
        files.update(_files(folder, module.path, name))
        if unknown or module.kind == "Dropout":
            continue
        if module.kind == "Pooling" and pooling is None:
            pooling = _settings(place / _CONFIG, _Pooling)
            width *= len(pooling.modes)
        elif pooling is not None and module.kind in _STEPS:
            step, width = _STEPS[module.kind](place, width)
            steps += [] if step is None else [step]
            unknown = module.kind if step is None else ""
        else:
            unknown = module.kind
    return Embedding(
        modes=("mean",) if pooling is None else pooling.modes,
        include_prompt=pooling is None or pooling.include_prompt,
        steps=tuple(steps),
        max_length=reading.max_seq_length or _tokenizer_limit(inside),
        lower_case=reading.do_lower_case,
        prompt=general.prompts.get(general.default_prompt_name or "") or "",
        files=files,
        unknown=unknown or ("" if pooling else "network without pooling"),
    )


def _inside(path: str) -> str:
    """Return a module's path in its usual spelling, without `./` or a slash at its end."""
    plain = PurePosixPath(path)
    if plain.is_absolute() or ".." in plain.parts:
        raise ValueError(f"the path {path[:60]} leads out of the folder")
    if "\0" in path or len(path.encode()) > _LONGEST_PATH:
        raise ValueError(f"no folder can be called {path[:60]!a}")
    return "" if plain == PurePosixPath() else str(plain)


class _Module(Saved):
    """A module in modules.json: where its files lie, and its class."""

    path: Annotated[str, AfterValidator(_inside)]
    type: str = Field(pattern=r"\w\.\w")

    @property
    def kind(self) -> str:
        """The name of the class, whole where it is not one of the library's own."""
        return self.type.rpartition(".")[2] if self.type.startswith(_LIBRARY) else self.type


class _Modules(RootModel[Annotated[list[_Module], Field(min_length=1)]]):
    model_config = ConfigDict(strict=True, frozen=True)


class _Texts(Saved):
    """How texts become tokens."""

    max_seq_length: int | None = Field(None, ge=1, lt=_NO_LIMIT)
    do_lower_case: bool = False


class _General(Saved):
    """What is put before texts."""

    prompts: dict[str, str | None] = Field(default_factory=dict)
    default_prompt_name: str | None = None

    @model_validator(mode="after")
    def _check_default(self) -> Self:
        if self.default_prompt_name is not None and self.default_prompt_name not in self.prompts:
            raise ValueError(f"default_prompt_name is {self.default_prompt_name[:60]!r}, which is none of the prompts")
        return self


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


class _Pooling(Saved):
    """The modes of pooling, as one field or, in earlier versions, as a field for each."""

    model_config = ConfigDict(extra="allow")
    embedding_dimension: int = Field(
        ge=1, validation_alias=AliasChoices("embedding_dimension", "word_embedding_dimension")
    )
    pooling_mode: Annotated[list[Mode], BeforeValidator(_as_list)] = Field([], min_length=1, max_length=len(MODES))
    include_prompt: bool = True

    @model_validator(mode="after")
    def _check_old_modes(self) -> Self:
        for key, value in (self.model_extra or {}).items():
            if key.startswith("pooling_mode_") and (not isinstance(value, bool) or (value and key not in _OLD_MODES)):
                raise ValueError(f"{key[:60]} is {str(value)[:60]}; known are {', '.join(_OLD_MODES)}, true or false")
        return self

    @property
    def modes(self) -> tuple[str, ...]:
        old = (mode for key, mode in _OLD_MODES.items() if (self.model_extra or {}).get(key))
        return tuple(self.pooling_mode) or tuple(old) or ("mean",)


class _Step(Saved):
    """What every module after pooling may say: which vector it reads, and where it puts its own."""

    module_input_name: str = _EMBEDDING
    module_output_name: str | None = None

    @property
    def in_place(self) -> bool:
        """Whether it makes the embedding of the embedding."""
        return self.module_input_name == _EMBEDDING and self.module_output_name in (None, _EMBEDDING)


class _Dense(_Step):
    in_features: int = Field(ge=1)
    out_features: int = Field(ge=1)
    bias: bool = True
    activation_function: str
    use_residual: bool = False


class _LayerNorm(Saved):
    dimension: int = Field(ge=1)


_CONFIG, _WEIGHTS = "config.json", "model.safetensors"
Schema = TypeVar("Schema", bound=BaseModel)


def _settings(path: Path, schema: type[Schema]) -> Schema:
    """Return the settings in a file; it may be missing where all of them have a default."""
    required = any(field.is_required() for field in schema.model_fields.values())
    if not required and not path.is_file():
        return shaped({}, schema)
    return read_json(path, schema, error=ModelError, way_out=_WAY_OUT)


def _modules(folder: Path) -> list[_Module]:
    """Return the modules of a folder, or raise ModelError where their list is damaged or leads out of the folder."""
    return _settings(folder / MODULES, _Modules).root


def _tokenizer_limit(folder: Path) -> int | None:
    """Return the longest text in tokens by a tokenizer's settings, where sentence-transformers 6 keeps its limit."""
    path = folder / "tokenizer_config.json"
    settings = read_object(path, error=ModelError, way_out=_WAY_OUT) if path.is_file() else {}
    most = settings.get("model_max_length")
    return int(most) if isinstance(most, (int, float)) and 1 <= most < _NO_LIMIT else None


def _files(folder: Path, place: str, name: str) -> dict[str, bytes]:
    """Return the files of a module's folder by their paths, or raise ModelError where they are too large."""
    paths = folder_files(folder / place, folder, deep=True) if place else []
    if sum(path.stat().st_size for path in paths) > _LARGEST:
        raise ModelError(f"The module {place} of {name} is larger than a GiB; open the encoder without {MODULES}.")
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def _tensors(place: Path, shapes: dict[str, tuple[int | None, ...]]) -> dict[str, Tensor]:
    """Return a module's tensors in float32, which must be these and hold nothing but finite numbers."""
    file = open_tensors(place / _WEIGHTS, error=ModelError, way_out=_WAY_OUT)
    file.require(shapes)
    if others := sorted(set(file.names) - set(shapes)):
        raise ModelError(f"{file.path} holds {others[0][:60]}, which its {_CONFIG} knows nothing of; {_WAY_OUT}.")
    for name in shapes:
        file.finite(name, name)
    return {name: file.tensor(name).float().clone() for name in shapes}


def _check_width(place: Path, needed: int, width: int) -> None:
    """Raise ModelError unless a module takes vectors of the width that the modules before it give."""
    if needed != width:
        raise ModelError(
            f"{place / _CONFIG} is of a module for vectors of {needed:,} numbers, and what comes before it gives "
            f"{width:,}; {_WAY_OUT}."
        )


def _dense(place: Path, width: int) -> tuple[Step | None, int]:
    """Return a linear layer with its activation and the width that it gives; None where it is not an ordinary one."""
    settings = _settings(place / _CONFIG, _Dense)
    _check_width(place, settings.in_features, width)
    module, _, kind = settings.activation_function.rpartition(".")
    activation = getattr(nn, kind if kind in _ACTIVATIONS else "Identity")()
    known = kind in _ACTIVATIONS and module in ("torch.nn", type(activation).__module__)
    # Weights in a pickle, as early versions wrote them, are kept and never opened.
    pickled = not (place / _WEIGHTS).is_file() and (place / "pytorch_model.bin").is_file()
    if not known or pickled or not settings.in_place or settings.use_residual:
        return None, width
    shapes: dict[str, tuple[int | None, ...]] = {"linear.weight": (settings.out_features, width)}
    shapes |= {"linear.bias": (settings.out_features,)} if settings.bias else {}
    tensors = _tensors(place, shapes)

    return _Linear(tensors["linear.weight"], tensors.get("linear.bias"), activation), settings.out_features


def _layer_norm(place: Path, width: int) -> tuple[Step | None, int]:
    """Return a layer norm, and the width."""
    settings = _settings(place / _CONFIG, _LayerNorm)
    _check_width(place, settings.dimension, width)
    weight, bias = _tensors(place, {"norm.weight": (width,), "norm.bias": (width,)}).values()
    return _Norm(weight, bias), width


def _normalize(place: Path, width: int) -> tuple[Step | None, int]:
    """Return the division by the length, and the width."""
    settings = _settings(place / _CONFIG, _Step)
    return _unit if settings.in_place else None, width


_STEPS: dict[str, Callable[[Path, int], tuple[Step | None, int]]] = {
    "Dense": _dense,
    "LayerNorm": _layer_norm,
    "Normalize": _normalize,
}
