"""ELMo's files: the published `options.json` and `weights.hdf5`, or the safetensors that layerscope writes."""

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
from layerscope.models.elmo import Elmo, ElmoOptions
from layerscope.store import write_json

OPTIONS, WEIGHTS = "options.json", "weights.hdf5"
SAFETENSORS = "model.safetensors"  # the weights in a folder that layerscope wrote


def read_options(path: Path) -> ElmoOptions:
    """Return the options of a network in a file, or raise ModelError."""
    try:
        return ElmoOptions.model_validate(json.loads(path.read_text()))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise ModelError(f"{path} is not an options file of ELMo: {reason}.") from error


def is_elmo(folder: Path) -> bool:
    """Return whether a folder holds ELMo: its options and its weights, and no checkpoint of transformers."""
    has_weights = (folder / SAFETENSORS).is_file() or bool(_published_files(folder, WEIGHTS))
    return not (folder / "config.json").exists() and has_weights and bool(_published_files(folder, OPTIONS))


def options_file(folder: Path) -> Path:
    """Return the options file of a folder; the names of published files begin with that of the network."""
    return _only(folder, OPTIONS)


def seed_files(folder: Path) -> list[Path]:
    """Return the files of the weights, which decide those of an untrained twin together with a seed."""
    path = folder / SAFETENSORS
    return [path] if path.is_file() else [_only(folder, WEIGHTS)]


def _published_files(folder: Path, name: str) -> list[Path]:
    """Return the files of a folder with a published name, alone or after the name of a network."""
    return sorted(path for path in folder.glob(f"*{name}") if path.name == name or path.name.endswith(f"_{name}"))


def _only(folder: Path, name: str) -> Path:
    """Return the one file of a published name, or raise ModelError where there are several."""
    files = _published_files(folder, name)
    if len(files) > 1:
        raise ModelError(f"{folder} holds several files of ELMo ({files[0].name}, {files[1].name}); keep one network.")
    return files[0] if files else folder / name


def read_folder(folder: Path) -> Elmo:
    """Return the network of a folder, from safetensors where there are any, or from the published files."""
    path = folder / SAFETENSORS
    if not path.is_file():
        return read_published(folder)
    network = Elmo(read_options(options_file(folder)))
    try:
        network.load_state_dict(load_file(path))
    except (SafetensorError, OSError, RuntimeError) as error:
        raise _mismatch(path, error) from error
    return network.eval()


def read_published(folder: Path) -> Elmo:
    """Return the network of a folder with the published files."""
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
        raise _mismatch(weights, error) from error
    return network.eval()


def _mismatch(path: Path, error: Exception) -> ModelError:
    """Return the error for weights that do not fit their options."""
    return ModelError(f"{path} does not hold the network of {OPTIONS}: {first_line(error)}")


def write_folder(network: Elmo, folder: Path) -> None:
    """Write a folder with the options, and the weights as safetensors in the float type that they have."""
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in network.state_dict().items()}, folder / SAFETENSORS)
    write_json(folder / OPTIONS, network.options.model_dump(mode="json"))


def published_weights(options: ElmoOptions, array: Callable[[str], np.ndarray]) -> dict[str, Tensor]:
    """Return the state dict made of arrays with their published names.

    Matrices are transposed, since TensorFlow computes x W where torch computes x W^T.
    """
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
            parts = _cell_weights(options, {name: array(f"{cell}/{name}") for name in ("W_0", "B", "W_P_0")})
            weights |= {f"layers.{layer}.{direction}.{name}": value for name, value in parts.items()}
    return {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in weights.items()}


def _cell_weights(options: ElmoOptions, arrays: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """Return the weights of one LSTM from its published arrays; W_0 has the input's rows above the state's."""
    width, dim = options.lstm.projection_dim, options.lstm.dim
    bias = arrays["B"].copy()
    bias[2 * dim : 3 * dim] += 1  # of the forget gate, to which TensorFlow adds it when it runs
    return {
        "input.weight": arrays["W_0"][:width].T,
        "state.weight": arrays["W_0"][width:].T,
        "state.bias": bias,
        "project.weight": arrays["W_P_0"].T,
    }
