"""Every text family that transformers can build small, through layerscope and against plain transformers.

Run `python docs/families.py` to write docs/families.md again.
"""

from __future__ import annotations

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

ROOT = Path(__file__).parent.parent
SENTENCES = ["the file is a list of value s", "return this string", "a", "not an object, but a (very) long sentence"]
LARGEST = 3_000_000  # parameters of a family that is called small
SECONDS = 25  # per family
DEPTH = 3
# What a small config says, where the family has a field of that name.
SIZES = {
    **dict.fromkeys(("num_hidden_layers", "n_layer", "n_layers", "num_layers"), DEPTH),
    **dict.fromkeys(("hidden_size", "n_embd", "d_model", "dim", "emb_dim"), 32),
    **dict.fromkeys(("num_attention_heads", "n_head", "n_heads", "num_heads"), 4),
    **dict.fromkeys(("intermediate_size", "n_inner", "d_inner", "hidden_dim", "ffn_dim", "moe_intermediate_size"), 48),
    **dict.fromkeys(("max_position_embeddings", "n_positions"), 128),
    **dict.fromkeys(("num_key_value_heads", "num_kv_heads"), 4),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "top_k"), 2),
    **{"head_dim": 8, "embedding_size": 32, "word_embed_proj_dim": 32, "attention_hidden_size": 32},
    **{"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8},
    **{"shared_expert_intermediate_size": 16, "n_group": 1, "topk_group": 1, "rotary_dim": 4},
}
IDS = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}


@dataclass(frozen=True)
class Outcome:
    """What became of one family: `right`, `refused` (with the reason), or a third thing that must not be."""

    family: str
    kind: str  # of network
    what: str
    reason: str = ""


def names() -> list[str]:
    """Model types with a text class, found in transformers' own mappings."""
    from transformers.models.auto import modeling_auto as auto

    text = (auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, auto.MODEL_FOR_MASKED_LM_MAPPING_NAMES)
    heads = auto.MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES
    return sorted(name for name in auto.MODEL_MAPPING_NAMES if any(name in part for part in (*text, heads)))


def built(family: str, vocabulary: int) -> tuple[str, Any] | None:
    """A small random network, with a head where the family has one; None where it cannot be made small."""
    from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

    usual = AutoConfig.for_model(family)
    if getattr(usual, "vocab_size", None) is None:
        return None
    fields = {name: value for name, value in SIZES.items() if hasattr(usual, name)}
    opener, kind = AutoModelForSequenceClassification, "classifier"
    if type(usual) not in AutoModelForSequenceClassification._model_mapping:
        opener, kind = AutoModel, "encoder"
    config = AutoConfig.for_model(family, **fields, vocab_size=vocabulary, num_labels=3, **IDS)
    with torch.device("meta"):
        size = sum(p.numel() for p in opener.from_config(config).parameters())
    if size > LARGEST:
        return None
    torch.manual_seed(0)
    return kind, opener.from_config(config).eval()


def examined(family: str) -> Outcome | None:
    """One family through load, extract, curve, cut, save and reopen; None where it is no small text model."""
    import zoo

    from layerscope.errors import LayerscopeError

    try:
        found = built(family, len(zoo.VOCABULARY))
    except Exception:  # configs object to small sizes in many ways, which is no matter of layerscope's
        return None
    if found is None:
        return None
    kind, network = found
    folder = Path(tempfile.mkdtemp())
    try:
        return Outcome(family, kind, *_compared(kind, network, folder))
    except LayerscopeError as error:
        return Outcome(family, kind, "refused", str(error))
    except _SlowError:
        return Outcome(family, kind, "too slow to tell")
    except Exception as error:
        return Outcome(family, kind, "traceback", f"{type(error).__name__}: {error}")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _compared(kind: str, network: Any, folder: Path) -> tuple[str, str]:
    import pandas
    import zoo
    from transformers import AutoModel, AutoModelForSequenceClassification

    import layerscope as ls
    from layerscope.cutting.sweep import sweep
    from layerscope.errors import ModelError
    from layerscope.evaluation.exam import exam

    model = ls.load(network, tokenizer=zoo.tokenizer("gpt2"))
    labels = np.arange(len(SENTENCES)) % 3
    task = ls.task(pandas.DataFrame({"text": [*SENTENCES, *SENTENCES], "label": [*labels, *labels]}))
    rows = ls.extract(model, task, pool="mean", layers=[model.depth], final_norm=True, store=False)[model.depth]
    plain = torch.stack([_plain(network.base_model, text).mean(dim=0) for text in SENTENCES])
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
        plain = torch.stack([_plain(again, text).mean(dim=0) for text in SENTENCES])
        return ("right", "") if _close(smaller[smaller.layers[-1]][: len(plain)], plain) else ("wrong", "cut states")
    whole = ls.LayerPlan.truncated(model.depth, model.depth)
    logits = torch.from_numpy(sweep(exam(model, task), [whole, plan], "cuts"))[:, : len(SENTENCES)]
    for found, net, what in zip(logits, (network, again), ("logits", "logits of the cut"), strict=True):
        if not _close(found, torch.stack([_plain(net, text) for text in SENTENCES])):
            return "wrong", what
    return "right", ""


@torch.inference_mode()
def _plain(network: Any, text: str) -> torch.Tensor:
    """One text without padding, by transformers alone: logits (classes,) or states (time, width)."""
    import zoo

    from layerscope.models.replay import caches_off

    ids = zoo.tokenizer("gpt2")(text, return_tensors="pt")["input_ids"]
    with caches_off(network):  # some families cannot start a cache in a model that is this small
        result = network(input_ids=ids, attention_mask=torch.ones_like(ids))
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

    sys.path.insert(0, str(ROOT / "tests"))
    os.environ["HF_HUB_OFFLINE"] = "1"
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    warnings.simplefilter("ignore")
    before = signal.signal(signal.SIGALRM, _alarm)
    try:
        for family in names():
            signal.alarm(SECONDS)
            try:
                outcome = examined(family)
            except _SlowError:
                outcome = None
            finally:
                signal.alarm(0)
            if outcome is not None:
                yield outcome
    finally:
        signal.signal(signal.SIGALRM, before)


def page(found: list[Outcome]) -> str:
    """The table of all families."""
    import transformers

    right = sum(outcome.what == "right" for outcome in found)
    lines = [
        "# Families",
        "",
        f"Every text family that transformers {transformers.__version__} can build from a small config, found in its "
        "own mappings, was loaded, extracted, cut, saved and reopened, and compared with plain transformers: one text "
        f"at a time, without padding, with the block really removed. Of {len(found)} families {right} agree to 1e-4; "
        "the others are refused, with the reason. This page is written by `python docs/families.py`.",
        "",
        "| family | network | outcome | reason |",
        "| --- | --- | --- | --- |",
    ]
    for o in found:
        reason = " ".join(o.reason.split()).split(" Supported: ")[0].replace("|", "\\|")
        lines.append(f"| {o.family} | {o.kind} | {o.what} | {reason} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    os.environ["LAYERSCOPE_HOME"] = tempfile.mkdtemp()
    torch.set_num_threads(1)
    seen = []
    for one in outcomes():
        seen.append(one)
        print(one.family, one.kind, one.what, one.reason[:150], flush=True)
    (ROOT / "docs" / "families.md").write_text(page(seen), encoding="utf-8")
