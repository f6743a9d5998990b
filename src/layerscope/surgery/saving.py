"""`ls.save`: a standard checkpoint, reopened and compared before success is claimed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch

from layerscope.errors import InputError, ModelError
from layerscope.extract.exam import SCORES
from layerscope.models import Model, load
from layerscope.models.anatomy import evaluating
from layerscope.models.identity import fingerprint
from layerscope.models.load import quiet
from layerscope.models.replay import caches_off
from layerscope.models.selfcheck import close, primary
from layerscope.store import atomic_folder, check_free, write_json
from layerscope.surgery.cutting import ORIGIN, refuse_adapters
from layerscope.surgery.plan import LayerPlan, spans
from layerscope.version import __version__

RECORD = "layerscope.json"
_TEXTS = (
    ("A short text.", "And what is said of it."),
    ("The film is slow at first, but its last half hour is worth the wait and the ticket.", "It ends well."),
    ("Numbers, such as 12 or 3.5, and names, such as Ada Lovelace, are read too.", "Nobody is named."),
)


def save(model: Any, path: str | Path) -> Path:
    """Write a checkpoint that plain transformers opens: safetensors, config, tokenizer, a card.

    It is reopened as a new object before it gets its name: every tensor must be there and equal, none may be missing or
    left over, and its logits on real texts must be the model's. An existing folder is replaced only if layerscope
    saved it.
    """
    opened, target = load(model), Path(path)
    refuse_adapters(opened)
    check_free(target, RECORD)
    with atomic_folder(target, RECORD) as folder:
        with quiet():
            opened.network.save_pretrained(folder)
            if opened.tokenizer is not None:
                opened.tokenizer.save_pretrained(folder)
        record = _record(opened)
        write_json(folder / RECORD, record)
        (folder / "README.md").write_text(card(opened, record), encoding="utf-8")
        _compare(opened, folder)
    return target


def _record(model: Model) -> dict[str, Any]:
    """What the checkpoint is made from, and what was measured of these very weights."""
    weights = fingerprint(model)
    scores = [s for s in getattr(model.network, SCORES, []) if s["weights"] == weights]
    return {
        "layerscope": __version__,
        "weights": weights,
        "family": model.anatomy.family,
        "depth": model.depth,
        "parameters": sum(p.numel() for p in model.network.parameters()),
        "steps": list(getattr(model.network, ORIGIN, [])),
        "scores": scores,
    }


def _compare(model: Model, folder: Path) -> None:
    """Reopen the folder and compare; an error if anything is not as it was."""
    again = load(str(folder), dtype=model.network.dtype, device=str(model.device))
    if type(again.network) is not type(model.network):
        raise ModelError(
            f"The checkpoint of {model.name} reopens as {type(again.network).__name__} where it was a "
            f"{type(model.network).__name__}; it was not saved."
        )
    before, after = model.network.state_dict(), again.network.state_dict()
    wrong = sorted(before.keys() ^ after.keys()) or [k for k in before if not torch.equal(before[k], after[k])]
    if wrong:
        raise ModelError(
            f"The checkpoint of {model.name} reopens with other weights ({len(wrong)} tensors, such as {wrong[0]}); "
            "it was not saved."
        )
    for inputs, same in zip(_inputs(model), _inputs(again), strict=True):
        if inputs.keys() != same.keys() or not all(torch.equal(inputs[k], same[k]) for k in inputs):
            raise ModelError(f"The tokenizer of {model.name} reopens as another one; nothing was saved.")
        if not close(_answer(again, inputs), _answer(model, inputs)):
            raise ModelError(f"The checkpoint of {model.name} gives other outputs when reopened; it was not saved.")


def _inputs(model: Model) -> list[dict[str, torch.Tensor]]:
    """Real texts as the model reads them, one a batch: no padding is needed."""
    if model.tokenizer is None:
        from layerscope.models.selfcheck import probe_inputs

        return [probe_inputs(model, rows=1)]
    limit = min(model.positions or 64, 64)
    found = []
    for text, pair in _TEXTS:
        batch = model.tokenizer(text, pair, truncation=True, max_length=limit, return_tensors="pt")
        names = ("input_ids", "attention_mask", "token_type_ids")
        inputs = {n: batch[n].to(model.device) for n in names if n in batch and _takes(model, n)}
        found.append({n: v[None] for n, v in inputs.items()} if model.multiple_choice else inputs)
    return found


def _takes(model: Model, name: str) -> bool:
    import inspect

    return name in inspect.signature(model.network.base_model.forward).parameters


def _answer(model: Model, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
    with torch.inference_mode(), evaluating(model.network), caches_off(model.network):
        return primary(model.network(**inputs))


def card(model: Model, record: dict[str, Any]) -> str:
    """The model card: what was cut from what, and the measured scores."""
    title = Path(model.network.name_or_path or model.anatomy.family).name
    lines = [
        "---",
        "library_name: transformers",
        "tags: [layerscope]",
        "---",
        "",
        f"# {title}, saved by layerscope",
        "",
    ]
    lines += [
        f"A {type(model.network).__name__} with {model.depth} blocks, width {model.width}, "
        f"{record['parameters']:,} parameters. It opens with plain transformers.",
        "",
    ]
    for step in record["steps"]:
        plan = LayerPlan.from_dict(step)
        gone = spans(plan.removed(step["depth"]))
        lines.append(
            f"- From `{step['from']}` ({step['depth']} blocks) blocks {gone} were removed and nothing was trained; the "
            f"head reads what was layer {plan.head}."
        )
    if record["steps"] and model.anatomy.shared:
        lines.append("- All blocks share their weights, so the file is as large as before; only the compute shrank.")
    if record["scores"]:
        lines += ["", "| task | split | metric | score | n |", "| --- | --- | --- | --- | --- |"]
        lines += [
            f"| {_cell(s['task'])} | {_cell(s['split'])} | {s['metric']} | {s['score']:.4f} | {s['n']} |"
            for s in record["scores"]
        ]
    else:
        lines += ["", "No score was measured of these weights before they were saved."]
    return "\n".join(lines) + "\n"


def _cell(text: str) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")


def read_record(folder: str | Path) -> dict[str, Any]:
    """What `save` wrote beside a checkpoint."""
    path = Path(folder) / RECORD
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{folder} was not saved by layerscope: it has no readable {RECORD}.") from error
