"""`layerscope models`"""

from __future__ import annotations

from typing import Any

import typer

from layerscope.cli.options import Given
from layerscope.cli.output import FORMAT, Format, show
from layerscope.errors import InputError

PLACE = 130  # in the help text


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  `layerscope models demo:minilm`; `layerscope models --garden`")(models)


def models(
    model: str | None = typer.Argument(None, help="A model to open and check; without one, the known families."),
    garden: bool = typer.Option(False, "--garden", help="List the small models of the installed garden."),
    device: str | None = Given.device,
    dtype: str = Given.dtype,
    format: Format = FORMAT,
) -> None:
    """The families of models that are known; or what one model is, and whether replay is sound on it."""
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
        return

    from layerscope.models.heads import WORDS
    from layerscope.models.selfcheck import faults

    opened = ls.load(model, device=device, dtype=dtype)
    record = {
        "model": model,
        "class": type(opened.network).__name__,
        "head": WORDS[opened.head],
        "family": opened.anatomy.family + (" (found by the generic finder)" if opened.anatomy.generic else ""),
        "blocks": f"1..{opened.depth} at {opened.anatomy.blocks}",
        "width": opened.width,
        "parameters": sum(p.numel() for p in opened.network.parameters()),
        "tokenizer": type(opened.tokenizer).__name__ if opened.tokenizer else "none",
        "self_check": next(faults(opened), None) or "replay is sound",
    }
    if format is Format.json:
        show([record], format)
    else:
        show([{"what": k.replace("_", " "), "is": str(v)} for k, v in record.items()], format)


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
