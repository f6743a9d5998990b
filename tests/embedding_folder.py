"""A folder as sentence-transformers saves one, around a small random BERT."""

import json

import torch
import zoo
from safetensors.torch import save_file


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def make(path, *, modes=("mean",), dense=True, normalize=True, inside="", prompt="", include_prompt=True):
    """A folder as sentence-transformers saves one, around a small random BERT."""
    zoo.save(path / inside, "bert", "encoder")
    kinds = ["Transformer", "Pooling", *["Dense"] * dense, *["Normalize"] * normalize]
    places = [inside, *(f"{k}_{kind}" for k, kind in enumerate(kinds) if k)]
    listed = [
        {"idx": k, "name": str(k), "path": place, "type": f"sentence_transformers.models.{kind}"}
        for k, (place, kind) in enumerate(zip(places, kinds, strict=True))
    ]
    write(path / "modules.json", listed)
    flags = {
        **{f"pooling_mode_{old}": mode in modes for old, mode in (("cls_token", "cls"), ("max_tokens", "max"))},
        **{f"pooling_mode_{mode}_tokens": mode in modes for mode in ("mean", "weightedmean")},
        "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens" in modes,
        "pooling_mode_lasttoken": "lasttoken" in modes,
    }
    pooling = {"word_embedding_dimension": 32, **flags, "include_prompt": include_prompt}
    write(path / "1_Pooling" / "config.json", pooling)
    if dense:
        width = 32 * len(modes)
        activation = "torch.nn.modules.activation.Tanh"
        settings = {"in_features": width, "out_features": 16, "bias": True, "activation_function": activation}
        write(path / "2_Dense" / "config.json", settings)
        generator = torch.Generator().manual_seed(0)
        weights = {
            "linear.weight": torch.randn(16, width, generator=generator),
            "linear.bias": torch.randn(16, generator=generator),
        }
        save_file(weights, path / "2_Dense" / "model.safetensors")
    if normalize:
        (path / f"{2 + dense}_Normalize").mkdir()
    write(path / inside / "sentence_bert_config.json", {"max_seq_length": 9, "do_lower_case": False})
    about = {"prompts": {"query": prompt}, "default_prompt_name": "query" if prompt else None}
    write(path / "config_sentence_transformers.json", about)
    return path
