"""The model card of a checkpoint that layerscope saved: what it is made from, what was measured, how to open it.

The card begins with data that the hub reads: base model, licence, every score (`model-index`), the plan.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from layerscope.cutting.plan import LayerPlan, spans
from layerscope.evaluation.score import Number, Score
from layerscope.models import Model
from layerscope.models.heads import HEADS
from layerscope.models.sources import TUNED

PATCH = "patch"  # what a record says in place of a method of training where the model was patched
PLACE = "path/to/this/folder"  # in the card's code, until it is on the hub
_EMBEDS = "sentence-similarity"


def score_entries(score: Score) -> list[dict[str, Any]]:
    """Return the numbers of a score as `layerscope.json` keeps them, each with its data, split, rows and interval."""
    data = score.provenance.get("data", {})
    common = {"weights": score.weights, "note": score.note}
    if "fingerprint" in data:
        common["data"] = data["fingerprint"]
    entries = []
    for number in score.asked_for:
        sure = math.isfinite(number.low) and math.isfinite(number.high)
        entries.append(
            {
                "task": number.task,
                "split": number.split,
                "metric": number.metric,
                "score": number.value if math.isfinite(number.value) else None,
                "n": number.n,
                "rows_are": number.rows_are,
                "interval": [number.low, number.high] if sure else None,
                "interval_note": number.interval_note or ("" if sure else _no_interval(number)),
                "kind": number.kind,
                **common,
            }
        )
    return entries


def _no_interval(number: Number) -> str:
    """Return why a number has no interval, where what measured it does not say."""
    return "none was measured" if math.isnan(number.low) else "it has no finite end"


def card(model: Model, record: Mapping[str, Any], reads_texts: bool = True) -> str:
    """Return the whole card; `reads_texts` says whether a tokenizer goes with the weights."""
    title = _title(model)
    kind = type(model.network).__name__
    blocks = "1 block" if record["depth"] == 1 else f"{record['depth']} blocks"
    text = [
        f"# {title}, saved by layerscope",
        "",
        f"A {kind} with {blocks}, width {model.width}, {record['parameters']:,} parameters. It opens "
        f"with plain {_library(model)}.",
        "",
        *_origin(model, record),
        *_scores(record),
        "",
        "## How to open it",
        "",
        "```python",
        *_code(model, reads_texts),
        "```",
    ]
    return f"---\n{_head(model, record, title)}\n---\n\n" + "\n".join(text) + "\n"


def _title(model: Model) -> str:
    """Return the model's name; a training's checkpoint has that of the training's folder."""
    path = Path(model.network.name_or_path or model.architecture.family)
    return path.parent.name if path.name == TUNED and path.parent.name else path.name


def _library(model: Model) -> str:
    return "sentence-transformers" if model.embedding is not None and model.embedding.files else "transformers"


def _head(model: Model, record: Mapping[str, Any], title: str) -> str:
    """Return the card's data as YAML."""
    from huggingface_hub import EvalResult, ModelCardData

    base = record["base"] or {}
    # What the hub calls the thing that a model does.
    purpose = HEADS[model.head].pipeline_tag or None if _library(model) == "transformers" else _EMBEDS
    results = [
        EvalResult(
            task_type=purpose or "other",
            dataset_type=entry["task"],
            dataset_name=entry["task"],
            dataset_split=entry["split"] or None,
            metric_type=entry["metric"],
            metric_value=entry["score"],
            metric_args=_arguments(entry),
        )
        for entry in record["scores"]
        if entry["score"] is not None
    ]
    data = ModelCardData(
        base_model=base["name"] if base.get("hub") else None,
        library_name=_library(model),
        pipeline_tag=purpose,
        license=base.get("license"),
        license_name=base.get("license_name"),
        license_link=base.get("license_link"),
        tags=["layerscope"],
        model_name=title,
        eval_results=results or None,
        layerscope=_plan(record),
    )
    if not results:
        data.model_name = None
    return str(data.to_yaml()).strip()


def _arguments(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a score rests on, beside its data and split."""
    arguments = {"n": entry["n"], "kind": entry["kind"] or None, "interval_95": entry["interval"]}
    arguments["interval_note"] = entry["interval_note"] or None
    arguments["rows"] = entry["note"] or None
    return {name: value for name, value in arguments.items() if value is not None}


def _plan(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was cut and trained, as data; the rows that were learned from stand in layerscope.json alone."""
    base = {name: value for name, value in (record["base"] or {}).items() if name in ("name", "revision")}
    steps = [
        {name: step[name] for name in ("from", "depth", "keep", "head") if name in step} for step in record["steps"]
    ]
    plain = {"version": record["layerscope"], "base": base, "steps": steps, "training": list(record["training"])}
    return {name: value for name, value in plain.items() if value}


def _origin(model: Model, record: Mapping[str, Any]) -> list[str]:
    """Return lines on what the model is made from, step by step."""
    lines = []
    if base := record["base"]:
        at = f" at revision `{base['revision']}`" if base.get("revision") else ""
        licences = base.get("license") or []
        stated = ", ".join([licences] if isinstance(licences, str) else licences)
        named = f" ({base['license_name']})" if base.get("license_name") else ""
        licence = f"its card states the licence {stated}{named}" if stated else "no card beside it states a licence"
        lines.append(f"- It began as `{base['name']}`{at}; {licence}.")
    if file := record.get("converted"):
        lines.append(
            f"- Its weights were made from the GGUF file `{file['file']}` (most of them {file['quantisation']}; "
            f"SHA-256 {file['sha256']}), so they are no more exact than those."
        )
    for step in record["steps"]:
        plan = LayerPlan.from_spec(step)
        gone = spans(plan.removed(step["depth"]))
        untrained = "" if any(entry["method"] != PATCH for entry in record["training"]) else " and nothing was trained"
        lines.append(
            f"- From `{step['from']}` ({step['depth']} blocks) blocks {gone} were removed{untrained}; the head reads "
            f"what was layer {plan.head}."
        )
    if record["steps"] and model.architecture.shared:
        lines.append("- All blocks share their weights, so the file is as large as before; only the compute shrank.")
    lines += [_trained(entry) for entry in record["training"]]
    for entry in record["learned"]:
        lines.append(f"- Learned from {entry['n']} rows of `{entry['task']}` ({entry['split']}).")
    return lines


def _trained(entry: Mapping[str, Any]) -> str:
    """Return one training in a sentence: how, on what, and with which settings."""
    if entry["method"] == PATCH:
        return _patched(entry)
    skipped = ("method", "strategy", "task", "split", "n")
    settings = [f"{name.replace('_', ' ')} {value}" for name, value in entry.items() if name not in skipped]
    strategy = f", strategy {entry['strategy']}" if entry.get("strategy") else ""
    details = f": {', '.join(settings)}" if settings else ""
    rows = f"{entry['n']} rows of `{entry['task']}` ({entry['split']})"
    return f"- Trained by `{entry['method']}`{strategy}, on {rows}{details}."


def _patched(entry: Mapping[str, Any]) -> str:
    """Return what a patch solved in a sentence: where, on what, and with what gain."""
    solved, tokens = "; ".join(entry["solved"]), f"{entry['tokens']:,} tokens of `{entry['task']}` ({entry['split']})"
    judged = "; ".join(
        f"on {each['held_out']} held-out {each['rows_are']} of `{each['task']}` it is {each['patched']:.4f}, where it "
        f"was {each['cut']:.4f} with the plain cut and {each['whole']:.4f} whole ({each['loss']})"
        for each in entry["domains"]
    )
    return (
        f"- Patched, which trains nothing: {solved} solved anew by least squares, for what the whole model gives, on "
        f"{tokens}, labels unused. The loss: {judged}. On texts unlike these the gain may be another."
    )


def _scores(record: Mapping[str, Any]) -> list[str]:
    """Return the table of scores as lines of Markdown."""
    if not record["scores"]:
        return ["", "No score of these weights was given when they were saved."]
    names = ("task", "split", "metric", "score", "n", "rows", "95% interval", "kind")
    lines = ["", f"| {' | '.join(names)} |", "|" + " --- |" * len(names)]
    for entry in record["scores"]:
        ends, why = entry["interval"], entry["interval_note"]
        interval = f"none: {why}" if ends is None else f"{ends[0]:.4f} to {ends[1]:.4f} {why}".rstrip()
        score = "undefined" if entry["score"] is None else f"{entry['score']:.4f}"
        note = entry["note"] or "all that were asked for"
        cells = (entry["task"], entry["split"], entry["metric"], score, entry["n"], note, interval, entry["kind"])
        escaped = [str(cell).replace("|", "\\|").replace("\n", " ") for cell in cells]
        lines.append(f"| {' | '.join(escaped)} |")
    return lines


def _code(model: Model, reads_texts: bool) -> list[str]:
    """Return the code that opens the checkpoint with the library that it is for."""
    if _library(model) != "transformers":
        return [
            "from sentence_transformers import SentenceTransformer",
            "",
            f'model = SentenceTransformer("{PLACE}")',
        ]
    opener = _opener(model)
    names = [opener] if not reads_texts else ["AutoTokenizer", opener]
    lines = [f"from transformers import {', '.join(sorted(names))}", ""]
    lines.append(f'model = {opener}.from_pretrained("{PLACE}")')
    return lines if not reads_texts else [*lines, f'tokenizer = AutoTokenizer.from_pretrained("{PLACE}")']


def _opener(model: Model) -> str:
    """Return the Auto class that opens a network as what it is, or the network's own class where none does."""
    import transformers

    kind = type(model.network)
    name = HEADS[model.head].opener
    mapping = getattr(getattr(transformers, name, None), "_model_mapping", None)
    try:
        opened = None if mapping is None else mapping[type(model.network.config)]
    except KeyError:
        opened = None
    choices = opened if isinstance(opened, tuple) else (opened,)
    return name if kind in choices[:1] else kind.__name__
