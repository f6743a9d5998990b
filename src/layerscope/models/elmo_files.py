"""ELMo's published files, `options.json` and `weights.hdf5`, as the weights of `elmo.Elmo`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from layerscope.errors import InputError, ModelError, first_line
from layerscope.models.elmo import Elmo
from layerscope.models.elmo_options import ElmoOptions
from layerscope.store import write_json

OPTIONS, WEIGHTS = "options.json", "weights.hdf5"
OWN_WEIGHTS = "model.safetensors"  # of a folder that layerscope wrote


def read_options(path: Path) -> ElmoOptions:
    """What an options file says of its network."""
    try:
        return ElmoOptions.model_validate(json.loads(path.read_text()))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise ModelError(f"{path} is not an options file of ELMo: {reason}.") from error


def is_elmo(folder: Path) -> bool:
    """Whether a folder holds ELMo: its options and its weights, and no checkpoint of transformers."""
    has_weights = (folder / OWN_WEIGHTS).is_file() or bool(_published_files(folder, WEIGHTS))
    return not (folder / "config.json").exists() and has_weights and bool(_published_files(folder, OPTIONS))


def options_file(folder: Path) -> Path:
    """The options of a folder; published files have a name of the network before it."""
    return _only(folder, OPTIONS)


def seed_files(folder: Path) -> list[Path]:
    """What an untrained twin is the twin of: the weights."""
    own = folder / OWN_WEIGHTS
    return [own] if own.is_file() else [_only(folder, WEIGHTS)]


def _published_files(folder: Path, name: str) -> list[Path]:
    return sorted(path for path in folder.glob(f"*{name}") if path.name == name or path.name.endswith(f"_{name}"))


def _only(folder: Path, name: str) -> Path:
    files = _published_files(folder, name)
    if len(files) > 1:
        raise ModelError(f"{folder} holds several files of ELMo ({files[0].name}, {files[1].name}); keep one network.")
    return files[0] if files else folder / name


def read_folder(folder: Path) -> Elmo:
    """The network of a folder: our own safetensors where they are, or the published files."""
    own = folder / OWN_WEIGHTS
    if not own.is_file():
        return read_published(folder)
    network = Elmo(read_options(options_file(folder)))
    try:
        network.load_state_dict(load_file(own))
    except (SafetensorError, OSError, RuntimeError) as error:
        raise _not_of_options(own, error) from error
    return network.eval()


def read_published(folder: Path) -> Elmo:
    """The network of a folder with the published files."""
    try:
        import h5py
    except ImportError:
        raise InputError("ELMo's published weights are HDF5: pip install 'layerscope[elmo]'.") from None

    options, weights = read_options(options_file(folder)), _only(folder, WEIGHTS)
    if options.lstm.attention_heads is not None:
        raise ModelError(f"{folder} is a transformer ELMo, which was not published as HDF5; open its converted folder.")
    network = Elmo(options)
    try:
        with h5py.File(weights, "r") as file:
            network.load_state_dict(published_weights(options, lambda name: np.asarray(file[name], dtype=np.float32)))
    except (OSError, KeyError, RuntimeError, ValueError, TypeError) as error:
        raise _not_of_options(weights, error) from error
    return network.eval()


def _not_of_options(path: Path, error: Exception) -> ModelError:
    return ModelError(f"{path} does not hold the network of {OPTIONS}: {first_line(error)}")


def write_folder(network: Elmo, folder: Path) -> None:
    """A folder of our own: the options, and the weights as safetensors, in the float type that they have."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in network.state_dict().items()}, folder / OWN_WEIGHTS)
    write_json(folder / OPTIONS, network.options.model_dump(mode="json"))


def published_weights(options: ElmoOptions, array: Callable[[str], np.ndarray]) -> dict[str, Tensor]:
    """The state dict from arrays by their published names. TensorFlow multiplies from the left, torch transposes."""
    embedded = array("char_embed")
    weights = {"words.embedding.weight": np.concatenate([np.zeros_like(embedded[:1]), embedded])}
    for k in range(len(options.char_cnn.filters)):
        weights[f"words.convolutions.{k}.weight"] = array(f"CNN/W_cnn_{k}").squeeze(0).transpose(2, 1, 0)
        weights[f"words.convolutions.{k}.bias"] = array(f"CNN/b_cnn_{k}")
    for k in range(options.char_cnn.n_highway):
        for ours, theirs in (("transform", "transform"), ("gate", "carry")):
            weights[f"words.highways.{k}.{ours}.weight"] = array(f"CNN_high_{k}/W_{theirs}").T
            weights[f"words.highways.{k}.{ours}.bias"] = array(f"CNN_high_{k}/b_{theirs}")
    weights["words.projection.weight"] = array("CNN_proj/W_proj").T
    weights["words.projection.bias"] = array("CNN_proj/b_proj")
    for layer in range(options.lstm.n_layers):
        for number, direction in enumerate(("forwards", "backwards")):
            cell = f"RNN_{number}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            own = _of_cell(options, {name: array(f"{cell}/{name}") for name in ("W_0", "B", "W_P_0")})
            weights |= {f"layers.{layer}.{direction}.{name}": value for name, value in own.items()}
    return {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in weights.items()}


def _of_cell(options: ElmoOptions, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """W_0 has the input's rows above the state's; TensorFlow adds 1 to the forget gate (the third) when it runs."""
    width, dim = options.lstm.projection_dim, options.lstm.dim
    bias = arrays["B"].copy()
    bias[2 * dim : 3 * dim] += 1
    return {
        "input.weight": arrays["W_0"][:width].T,
        "state.weight": arrays["W_0"][width:].T,
        "state.bias": bias,
        "project.weight": arrays["W_P_0"].T,
    }
