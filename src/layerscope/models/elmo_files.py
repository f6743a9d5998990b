"""ELMo's published files, `options.json` and `weights.hdf5`, as the weights of `elmo.Elmo`."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from safetensors.torch import save_file
from torch import Tensor

from layerscope.errors import InputError, ModelError
from layerscope.models.elmo import Elmo, ElmoOptions
from layerscope.store import write_json

OPTIONS, WEIGHTS = "options.json", "weights.hdf5"
OWN_WEIGHTS = "model.safetensors"  # of a folder that layerscope wrote


def read_options(path: Path) -> ElmoOptions:
    """What an options file says of its network."""
    try:
        return ElmoOptions.model_validate(json.loads(path.read_text()))
    except (OSError, ValueError, RecursionError) as error:
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise ModelError(f"{path} is no options file of ELMo: {reason}.") from error


def read_published(folder: Path) -> Elmo:
    """The network of a folder with the published files."""
    try:
        import h5py
    except ImportError:
        raise InputError("ELMo's published weights are HDF5: pip install 'layerscope[elmo]'.") from None

    options = read_options(folder / OPTIONS)
    if options.lstm.attention_heads is not None:
        raise ModelError(f"{folder} is a transformer ELMo, which was not published as HDF5; open its converted folder.")
    network = Elmo(options)
    try:
        with h5py.File(folder / WEIGHTS, "r") as file:
            network.load_state_dict(published_weights(options, lambda name: np.asarray(file[name], dtype=np.float32)))
    except (OSError, KeyError, RuntimeError, ValueError, TypeError) as error:
        first = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise ModelError(f"{folder / WEIGHTS} does not hold the network of {OPTIONS}: {first}") from error
    return network.eval()


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
