"""Turn the published transformer ELMo (an AllenNLP archive) into a folder that layerscope opens.

Run with: python garden/convert_transformer_elmo.py transformer-elmo-2019.01.10.tar.gz OUT

The archive's weights are a pickle, which layerscope never opens. This script runs apart from it, reads the pickle with
torch's `weights_only=True` (tensors, and no code), and writes `options.json` and `model.safetensors`:

- Characters, convolutions, projection and norm of the words as they are.
- A highway is one matrix there: its first half makes the new values, its second half the gate by which the input is
  carried on. Our gate lets the new values in, so it is that half with the sign turned around.
- A block of each direction: `self_attn.linears.0..3` are query, key, value and output, `feed_forward.w_1` and `w_2` go
  up and down, `sublayer.0.norm` stands before attention and `sublayer.1.norm` before the feed-forward part.
- The norm after the last block belongs to the last layer, as the authors read it.
- The output layer of the language model, and what is left of training, is left out.
"""

from __future__ import annotations

import argparse
import json
import re
import tarfile
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

_HEADS = 8  # fixed in the published code
_CHARACTERS = "token_embedder_token_characters"
_PARTS = {
    "self_attn.linears.0": "query",
    "self_attn.linears.1": "key",
    "self_attn.linears.2": "value",
    "self_attn.linears.3": "output",
    "feed_forward.w_1": "up",
    "feed_forward.w_2": "down",
    "sublayer.0.norm": "attention_norm",
    "sublayer.1.norm": "feedforward_norm",
}
_ENDINGS = {"weight": "weight", "bias": "bias", "gamma": "weight", "beta": "bias"}
_BLOCK = re.compile(r"_(forward|backward)_transformer\.layers\.(\d+)\.(.+)\.(weight|bias|gamma|beta)$")
_NORM = re.compile(r"_(forward|backward)_transformer\.norm\.(gamma|beta)$")
_CONVOLUTION = re.compile(r"char_conv_(\d+)\.(weight|bias)$")
_HIGHWAY = re.compile(r"_highways\._layers\.(\d+)\.(weight|bias)$")


def converted(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors by the names of `layerscope.models.elmo.Elmo`."""
    depth = 1 + max(int(m[2]) for name in weights if (m := _BLOCK.search(name)))
    ours: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if m := _BLOCK.search(name):
            ours[f"layers.{m[2]}.{m[1]}s.{_PARTS[m[3]]}.{_ENDINGS[m[4]]}"] = tensor
        elif m := _NORM.search(name):
            ours[f"layers.{depth - 1}.{m[1]}s.final_norm.{_ENDINGS[m[2]]}"] = tensor
        elif _CHARACTERS in name:
            ours |= _word_tensors(name, tensor)
    return {name: tensor.float().contiguous() for name, tensor in ours.items()}


def _word_tensors(name: str, tensor: Tensor) -> dict[str, Tensor]:
    """One tensor of the character encoder; two where it is a highway's."""
    if m := _CONVOLUTION.search(name):
        return {f"words.convolutions.{m[1]}.{m[2]}": tensor}
    if m := _HIGHWAY.search(name):
        new, carry = tensor.chunk(2)
        return {f"words.highways.{m[1]}.transform.{m[2]}": new, f"words.highways.{m[1]}.gate.{m[2]}": -carry}
    ending = name.rpartition(".")[2]
    place = "projection" if "_projection." in name else "norm" if "_layer_norm." in name else "embedding"
    return {f"words.{place}.{_ENDINGS[ending]}": tensor}


def options_of(config: dict[str, Any]) -> dict[str, Any]:
    """`options.json` from the archive's config."""
    model = config["model"]
    encoder = _found(model["text_field_embedder"], "encoder")
    stack = model["contextualizer"]
    if stack["type"] != "bidirectional_language_model_transformer" or encoder["projection_location"] != "after_highway":
        raise SystemExit("The archive holds another network than the transformer ELMo.")
    return {
        "char_cnn": {
            "activation": encoder["activation"],
            "filters": encoder["filters"],
            "n_highway": encoder["num_highway"],
            "embedding": {"dim": encoder["embedding_dim"]},
            "max_characters_per_token": 50,
            "layer_norm": bool(encoder.get("do_layer_norm", False)),
        },
        "lstm": {
            "projection_dim": stack["input_dim"],
            "dim": stack["hidden_dim"],
            "n_layers": stack["num_layers"],
            "attention_heads": _HEADS,
        },
    }


def _found(config: Any, name: str) -> dict[str, Any]:
    """The first dict of this name anywhere in a config."""
    if isinstance(config, dict):
        if isinstance(config.get(name), dict):
            return config[name]
        for value in config.values():
            if inner := _found(value, name):
                return inner
    return {}


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("archive", type=Path, help="the .tar.gz, or a folder with config.json and weights.th")
    parser.add_argument("out", type=Path)
    options = parser.parse_args(arguments)
    from safetensors.torch import save_file

    config, weights = _read(options.archive)
    options.out.mkdir(parents=True, exist_ok=True)
    save_file(converted(weights), options.out / "model.safetensors")
    (options.out / "options.json").write_text(json.dumps(options_of(config), indent=1) + "\n", encoding="utf-8")
    print(f"Converted; open it with layerscope.load({str(options.out)!r}).")


def _read(archive: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    if archive.is_dir():
        weights = torch.load(archive / "weights.th", map_location="cpu", weights_only=True)
        return json.loads((archive / "config.json").read_text(encoding="utf-8")), weights
    with tarfile.open(archive) as tar:
        members = {Path(member.name).name: member for member in tar.getmembers() if member.isfile()}
        files = {name: tar.extractfile(members[name]) for name in ("config.json", "weights.th")}
        config, pickle = files["config.json"], files["weights.th"]
        assert config is not None
        assert pickle is not None
        return json.loads(config.read()), torch.load(pickle, map_location="cpu", weights_only=True)


if __name__ == "__main__":
    main()
