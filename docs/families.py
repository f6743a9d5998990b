"""Every text family that transformers can build small, through layerscope and against plain transformers.

Run `python docs/families.py` to write docs/families.md again.
"""

from __future__ import annotations

import copy
import os
import shutil
import signal
import sys
import tempfile
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from layerscope.models.replay import caches_off

ROOT = Path(__file__).parent.parent
SENTENCES = ["the file is a list of value s", "return this string", "a", "not an object, but a (very) long sentence"]
LARGEST = 10_000_000  # parameters of a family that is called small
SECONDS = 120  # per family, on a busy machine
DEPTH = 3
# What a small config says, where the family has a field of that name.
SIZES: dict[str, Any] = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), DEPTH),
    **dict.fromkeys(("encoder_layers", "decoder_layers", "num_encoder_layers", "num_decoder_layers"), DEPTH),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "dim", "emb_dim"), 32),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(("num_encoder_attention_heads", "num_decoder_attention_heads"), 4),
    **dict.fromkeys(("intermediate_size", "n_inner", "d_inner", "hidden_dim", "ffn_dim", "moe_intermediate_size"), 48),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "d_ff", "dim_ff", "ffn_hidden_size"), 48),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "position_bias_max_distance"), 128),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads"), 4),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "top_k"), 2),
    **{"head_dim": 8, "embedding_size": 32, "word_embed_proj_dim": 32, "attention_hidden_size": 32, "dim_head": 8},
    **{"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8},
    **{"shared_expert_intermediate_size": 16, "n_group": 1, "topk_group": 1, "rotary_dim": 4, "n_shared_experts": 1},
    **dict.fromkeys(("mamba_n_heads", "mamba_num_heads"), 4),
    **dict.fromkeys(("mamba_d_head", "mamba_head_dim"), 16),
    **dict.fromkeys(("mamba_d_state", "ssm_state_size"), 8),
    **dict.fromkeys(("mamba_n_groups", "n_groups"), 1),
    **dict.fromkeys(("mamba_chunk_size", "chunk_size"), 8),
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), 4),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim", "linear_head_dim"), 8),
    **{"linear_num_heads": 4, "num_experts_per_token": 2, "mamba_d_ssm": 64, "laurel_rank": 8},
    **{"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 200},
}
# Where transformers objects to those, these changes are tried in turn; None leaves a field as it usually is.
CHANGES: tuple[dict[str, Any], ...] = (
    {},
    {"head_dim": None},
    {"max_position_embeddings": None},
    {"num_experts_per_tok": 1},
    {"head_dim": 16},
    {"hidden_size": 64, "d_model": 64, "head_dim": 16, "embedding_size": 64},
    {"hidden_size": 64, "head_dim": 32, "num_attention_heads": 2, "num_key_value_heads": 2},
    {"num_hidden_layers": 2 * DEPTH, "n_layer": 2 * DEPTH, "num_layers": 2 * DEPTH},
)
# Fields that only one family has.
OWN: dict[str, dict[str, Any]] = {
    "cohere_compass_text": {
        "rope_parameters": {
            kind: {"rope_type": "default", "rope_theta": 10000.0} for kind in ("full_attention", "sliding_attention")
        }
    },
    "dbrx": {
        "attn_config": {"rope_theta": 10000.0, "kv_n_heads": 4, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 48, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "gemma3n_text": {
        **{"layer_types": ["sliding_attention", "full_attention", "sliding_attention"], "num_kv_shared_layers": 0},
        "activation_sparsity_pattern": [0.0, 0.0, 0.0],
    },
    "gpt_neo": {"attention_types": [[["global", "local", "global"], 1]]},
    "funnel": {"block_sizes": [1, 1, 1], "d_head": 8},
    "layoutlmv3": {"coordinate_size": 6, "shape_size": 4, "visual_embed": False},
    "lilt": {"hidden_size": 48},
    "lfm2_moe": {"layer_types": ["conv", "full_attention", "conv"]},
    "longcat_flash": {
        **{"zero_expert_num": 2, "moe_topk": 2, "expert_ffn_hidden_size": 16, "head_dim": 4},
        **{"num_layers": DEPTH, "num_hidden_layers": 2 * DEPTH},
    },
    "longformer": {"attention_window": 8},
    "luke": {"entity_vocab_size": 10, "entity_emb_size": 8},
    "mimo_v2_flash": {"head_dim": 12, "num_key_value_heads": 2},
    "perceiver": {"d_latents": 32, "num_latents": 8, "num_self_attends_per_block": DEPTH},
    "reformer": {
        **{"axial_pos_embds_dim": (8, 24), "axial_pos_shape": (8, 16), "attn_layers": ["local", "lsh", "local"]},
        **{"attention_head_size": 8, "feed_forward_size": 48, "local_attn_chunk_length": 8},
        **{"lsh_attn_chunk_length": 8, "num_buckets": 4, "hash_seed": 0},
    },
    "roc_bert": {
        **{"shape_vocab_size": 200, "pronunciation_vocab_size": 200},
        **{"pronunciation_embed_dim": 8, "shape_embed_dim": 8},
    },
    "xmod": {"default_language": "en_XX"},
    "zamba": {"attention_hidden_size": 64, "attention_head_dim": 16, "mamba_dt_rank": 4, "num_hidden_layers": 6},
    "zamba2": {"attention_hidden_size": 64, "attention_head_dim": 16},
}
# Where fields about single blocks are set: more blocks, and what those fields would be at odds with.
LAYERED: dict[str, dict[str, Any]] = {
    "gpt_neo": {"attention_types": [[["local", "global", "local"], 2]], "attention_layers": None},
    "lfm2": {"layer_types": None},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * DEPTH},
}
# What is said by fields of each kind (`layerscope.models.families.LAYER_FIELDS`), beside lists of the kinds of blocks.
SAID: dict[str, tuple[Any, ...]] = {
    **{
        "cycle": (["recurrent", "attention", "attention"],),
        "indices": ([1, 3],),
        "indices from 1": ([2, 4],),
        "first": (3,),
        "range": (1, 3, 1),
        "step": (2, [3]),
    },
    "period": (2, 1),
}
IDS = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}


@dataclass(frozen=True)
class Outcome:
    """What became of one family: `right`, `refused` or `not built` (with the reason); nothing else must be."""

    family: str
    kind: str  # of network
    what: str
    reason: str = ""
    fields: tuple[str, ...] = ()  # about single blocks, that were set


def names() -> list[str]:
    """Model types with a text class, found in transformers' own mappings."""
    from transformers.models.auto import modeling_auto as auto

    text = (auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES)
    heads = auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES
    return sorted(name for name in auto.MODEL_MAPPING_NAMES if any(name in part for part in (*text, heads)))


class NotBuiltError(Exception):
    """A family that cannot be made small, and why."""


def configs(family: str, vocabulary: int, layered: bool = False) -> Iterator[tuple[Any, str]]:
    """Small configs of a family, each with the error of those before it; `layered` sets what is about single blocks."""
    from transformers import AutoConfig

    usual, error = AutoConfig.for_model(family), ""
    ids = {**IDS, "num_labels": 3, **({"vocab_size": vocabulary} if hasattr(usual, "vocab_size") else {})}
    parts = {name: _fields(getattr(usual, name), SIZES) | {"vocab_size": vocabulary} for name in _parts(usual)}
    for change in CHANGES:
        wanted = {**SIZES, **change, **OWN.get(family, {})}
        if layered:
            wanted |= {**CHANGES[-1], **_layered(usual), **LAYERED.get(family, {})}
        fields = {**parts, **_fields(usual, wanted)}
        for lists in ({},) if layered else ({}, _layer_lists(usual, fields)):
            try:
                config = AutoConfig.for_model(family, **lists, **fields, **ids)
            except Exception as objection:  # configs object in many ways
                error = error or _short(objection)
                continue
            yield config, error
    yield None, error


def _parts(usual: Any) -> list[str]:
    """The names of the configs that a config is made of."""
    return sorted(name for name in usual.sub_configs if getattr(usual, name, None) is not None)


def _fields(usual: Any, wanted: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in wanted.items() if value is not None and _takes(usual, name, value)}


def _takes(usual: Any, name: str, value: Any) -> bool:
    """Whether a family has a field of this name that can be set."""
    try:
        if not hasattr(usual, name):
            return False
        setattr(copy.deepcopy(usual), name, value)
    except Exception:  # properties that cannot be set
        return name in usual.to_dict()
    return True


def _layer_lists(usual: Any, fields: dict[str, Any]) -> dict[str, list[Any]]:
    """Lists with an entry per layer, of every kind of entry in turn."""
    depth = getattr(usual, "num_hidden_layers", None)
    lists = {k: v for k, v in usual.to_dict().items() if isinstance(v, list) and depth and len(v) == depth}
    count = next((fields[name] for name in ("num_hidden_layers", "n_layer", "num_layers") if name in fields), DEPTH)
    return {k: (list(dict.fromkeys(v)) * count)[:count] for k, v in lists.items() if k not in fields}


def _layered(usual: Any) -> dict[str, Any]:
    """The fields of a family that are about single blocks, set so that the blocks of a small network differ."""
    from layerscope.models.families import LAYER_FIELDS, LAYER_LISTS

    stored, depth, said = usual.to_dict(), 2 * DEPTH, dict[str, Any]()
    for name in LAYER_LISTS:
        if isinstance(kinds := stored.get(name), (list, tuple)) and len(set(kinds)) > 1:
            said[name] = (list(dict.fromkeys(kinds))[::-1] * depth)[:depth]
    for field in LAYER_FIELDS:
        if field.how in SAID and all(name in stored for name in field.fields):
            said |= dict(zip(field.fields, SAID[field.how], strict=True))
    return said


def _short(error: Exception | str) -> str:
    return " ".join(str(error).split())[:200].rstrip(".") or type(error).__name__


def built(family: str, vocabulary: int, layered: bool = False) -> tuple[str, Any]:
    """A small random network that transformers can run, with a head where the family has one; else NotBuiltError."""
    from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

    usual = AutoConfig.for_model(family)
    if (parts := _parts(usual)) and not hasattr(usual, "vocab_size"):
        raise NotBuiltError(f"it is not a text model by itself: it is made of {', '.join(parts)}")
    opener, kind = AutoModelForSequenceClassification, "classifier"
    if type(usual) not in AutoModelForSequenceClassification._model_mapping:
        opener, kind = AutoModel, "encoder"
    reasons = []
    for config, objection in configs(family, vocabulary, layered):
        if config is None:
            raise NotBuiltError([*reasons, objection, "no config"][0])
        try:
            with torch.device("meta"):
                size = sum(p.numel() for p in opener.from_config(config).parameters())
            if size > LARGEST:
                raise NotBuiltError(f"with small sizes it still has {size:,} parameters")
            torch.manual_seed(0)
            network = opener.from_config(config).eval()
            if network.main_input_name != "input_ids":
                raise NotBuiltError(f"it does not read input_ids, but {network.main_input_name}")
            ids = torch.tensor([[5, 6, 7, 8, 9, 10, IDS["eos_token_id"]]])
            with torch.inference_mode(), caches_off(network):
                network(input_ids=ids, attention_mask=torch.ones_like(ids), **_decoded(config, ids))
        except Exception as error:
            reasons.append(_short(error))
        else:
            return kind, network
    raise AssertionError


def _decoded(config: Any, ids: torch.Tensor) -> dict[str, torch.Tensor]:
    """What an encoder-decoder needs besides."""
    return {"decoder_input_ids": ids} if getattr(config, "is_encoder_decoder", False) else {}


def examined(family: str, layered: bool = False) -> Outcome:
    """One family through load, extract, curve, cut, save and reopen; `layered` with fields about single blocks set."""
    from transformers import AutoConfig

    from layerscope.errors import LayerscopeError
    from tests.helpers.models import VOCABULARY

    folder, kind = Path(tempfile.mkdtemp()), ""
    fields = tuple(_layered(AutoConfig.for_model(family))) if layered else ()
    try:
        kind, network = built(family, len(VOCABULARY), layered)
        return Outcome(family, kind, *(_cut_inside if layered else _compared)(kind, network, folder), fields)
    except NotBuiltError as error:
        return Outcome(family, kind, "not built", str(error), fields)
    except LayerscopeError as error:
        return Outcome(family, kind, "refused", str(error), fields)
    except _SlowError:
        return Outcome(family, kind, "too slow to tell", "", fields)
    except Exception as error:
        return Outcome(family, kind, "traceback", f"{type(error).__name__}: {error}", fields)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _compared(kind: str, network: Any, folder: Path) -> tuple[str, str]:
    import pandas
    from transformers import AutoModel, AutoModelForSequenceClassification

    import layerscope as ls
    from layerscope.cutting.sweep import sweep
    from layerscope.errors import ModelError
    from layerscope.evaluation.evaluate import make_evaluator

    tokenizer = _tokenizer(network.config, folder)
    model = ls.load(network, tokenizer=tokenizer)
    labels = np.arange(len(SENTENCES)) % 3
    task = ls.task(pandas.DataFrame({"text": [*SENTENCES, *SENTENCES], "label": [*labels, *labels]}))
    rows = ls.extract(model, task, pool="mean", layers=[model.depth], final_norm=True, store=False)[model.depth]
    plain = torch.stack(
        [
            _plain(
                network.base_model, tokenizer, text, model.architecture.marks_summary if model.has_head else None
            ).mean(dim=0)
            for text in SENTENCES
        ]
    )
    if not _close(rows[: len(plain)], plain):
        return "wrong", "states"
    plan = ls.LayerPlan.truncated(model.depth, model.depth - 1)
    try:
        saved = ls.save(ls.cut(model, plan), folder / "cut")
    except ModelError as error:
        return "right", f"not cut: {error}"
    opener = AutoModelForSequenceClassification if kind == "classifier" else AutoModel
    again = opener.from_pretrained(saved).eval()
    if kind == "encoder":
        smaller = ls.extract(ls.load(saved), task, pool="mean", final_norm=True, store=False)
        plain = torch.stack([_plain(again, tokenizer, text).mean(dim=0) for text in SENTENCES])
        return ("right", "") if _close(smaller[smaller.layers[-1]][: len(plain)], plain) else ("wrong", "cut states")
    whole = ls.LayerPlan.truncated(model.depth, model.depth)
    logits = torch.from_numpy(sweep(make_evaluator(model, task), [whole, plan], "cuts"))[:, : len(SENTENCES)]
    for found, net, what in zip(logits, (network, again), ("logits", "logits of the cut"), strict=True):
        if not _close(found, torch.stack([_plain(net, tokenizer, text) for text in SENTENCES])):
            return "wrong", what
    return "right", ""


def _cut_inside(kind: str, network: Any, folder: Path) -> tuple[str, str]:
    """Blocks from the middle are cut out, in memory and on disk, and plain transformers passes over them."""
    from transformers import AutoModel, AutoModelForSequenceClassification

    import layerscope as ls
    from layerscope.errors import ModelError
    from tests.helpers.models import passed_over

    tokenizer, refused = _tokenizer(network.config, folder), ""
    model = ls.load(network, tokenizer=tokenizer)
    whole = ls.save(model, folder / "whole")
    opener = AutoModelForSequenceClassification if kind == "classifier" else AutoModel
    for first, last in ((2, 2), (2, 3), (3, 4), (4, 6)):
        plan = ls.LayerPlan([block for block in range(1, model.depth + 1) if not first <= block <= last])
        try:
            saved = {"in memory": ls.save(ls.cut(model, plan), folder / "cut")}
        except ModelError as error:
            refused = refused or str(error)
            continue
        notes = [f"without blocks {first}-{last}; not without block 2: {refused}"] if refused else []
        try:
            saved["on disk"] = ls.cut_folder(whole, plan, folder / "on-disk")
        except ModelError as error:
            notes.append(f"in memory only: {str(error).replace(str(whole), type(network).__name__)}")
        with passed_over(model.blocks()[first - 1 : last]):
            expected = [_plain(network, tokenizer, text) for text in SENTENCES]
        for where, place in saved.items():
            again = opener.from_pretrained(place).eval()
            got = [_plain(again, tokenizer, text) for text in SENTENCES]
            if not all(_close(one, other) for one, other in zip(got, expected, strict=True)):
                return "wrong", f"cut {where} without {first}-{last}"
        return "right", "; ".join(notes)
    return "right", f"not cut: {refused}"


def _tokenizer(config: Any, folder: Path) -> Any:
    """The tokenizer of the tests, as transformers opens it beside a config: some families have a class of their own."""
    from transformers import AutoTokenizer

    from tests.helpers.models import word_tokenizer

    word_tokenizer("gpt2").save_pretrained(folder / "tokenizer")
    config.save_pretrained(folder / "tokenizer")
    return AutoTokenizer.from_pretrained(folder / "tokenizer")


@torch.inference_mode()
def _plain(network: Any, tokenizer: Any, text: str, marked: str | None = None) -> torch.Tensor:
    """One text without padding, by transformers alone: logits (classes,) or states (time, width)."""
    ids = tokenizer(text, return_tensors="pt")["input_ids"]
    more = {} if marked is None else {marked: (torch.arange(ids.shape[1]) == 0).long()[None]}
    with caches_off(network):  # some families cannot start a cache in a model that is this small
        result = network(input_ids=ids, attention_mask=torch.ones_like(ids), **more)
    return result.logits[0] if hasattr(result, "logits") else result.last_hidden_state[0]


def _close(a: torch.Tensor, b: torch.Tensor) -> bool:
    return a.shape == b.shape and float((a - b).abs().max()) <= 1e-4 * max(1.0, float(b.abs().max()))


class _SlowError(BaseException):
    """A family that takes too long; no `except Exception` on the way may take it for the family's own error."""


def _alarm(*_: Any) -> None:
    raise _SlowError


def outcomes() -> Iterator[Outcome]:
    """All families that are small text models, one after another in this process."""
    from transformers.utils import logging

    sys.path.insert(0, str(ROOT))
    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.simplefilter("ignore")
    before = signal.signal(signal.SIGALRM, _alarm)
    from transformers import AutoConfig

    layered = [family for family in names() if _layered(AutoConfig.for_model(family))]
    try:
        for family, set_too in [*((name, False) for name in names()), *((name, True) for name in layered)]:
            signal.alarm(SECONDS)
            try:
                outcome = examined(family, set_too)
            finally:
                signal.alarm(0)
            yield outcome
    finally:
        signal.signal(signal.SIGALRM, before)


def page(found: list[Outcome]) -> str:
    """The table of all families, and the list of those that were not built."""
    import transformers

    layered = [outcome for outcome in found if outcome.fields]
    found = [outcome for outcome in found if not outcome.fields]
    made = [outcome for outcome in found if outcome.what != "not built"]
    right = sum(outcome.what == "right" for outcome in made)
    lines = [
        "# Families",
        "",
        f"Every text family that transformers {transformers.__version__} can build from a small config, found in its "
        "own mappings, was loaded, extracted, cut, saved and reopened, and compared with plain transformers: one text "
        f"at a time, without padding, with the block really removed. Of {len(made)} families {right} agree to 1e-4; "
        "the others are refused, with the reason. This page is written by `python docs/families.py`.",
        "",
        "| family | network | outcome | reason |",
        "| --- | --- | --- | --- |",
    ]
    for outcome in made:
        reason = outcome.reason.split(" Supported: ")[0]
        lines.append(f"| {outcome.family} | {outcome.kind} | {outcome.what} | {_cell(reason)} |")
    cut = [o for o in layered if o.what == "right" and not o.reason.startswith("not cut")]
    lines += [
        "",
        "## With fields about single blocks set",
        "",
        "Configs of these families say of single blocks what they are, and those fields are set here, so that blocks "
        "differ. Blocks from the middle are cut out, in memory and on disk, and both checkpoints are compared with the "
        "whole network, in which plain transformers passes over the blocks. "
        f"Of {len(layered)} families {len(cut)} are cut right.",
        "",
        "| family | fields | outcome | reason |",
        "| --- | --- | --- | --- |",
    ]
    for outcome in layered:
        reason = _cell(outcome.reason.split(" Supported: ")[0])
        lines.append(f"| {outcome.family} | {', '.join(outcome.fields)} | {outcome.what} | {reason} |")
    lines += [
        "",
        "## Not built from a small config",
        "",
        "Nothing was tried of these families, which the same mappings hold: transformers does not run them from any of "
        "the small configs that were tried, or they are not text models. layerscope checks itself on a model of such a "
        "family when it is loaded, as it does with every family that it has no record of.",
        "",
        "| family | reason |",
        "| --- | --- |",
    ]
    lines += [f"| {o.family} | {_cell(o.reason)} |" for o in found if o.what == "not built"]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;")


if __name__ == "__main__":
    os.environ["LAYERSCOPE_HOME"] = tempfile.mkdtemp()
    torch.set_num_threads(1)
    seen = []
    for each in outcomes():
        seen.append(each)
        print(each.family, each.kind, each.what, each.reason[:150], flush=True)
    (ROOT / "docs" / "families.md").write_text(page(seen), encoding="utf-8")
