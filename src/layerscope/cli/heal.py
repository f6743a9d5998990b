"""`layerscope heal`"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from layerscope.cli import console
from layerscope.cli.command import Given, command
from layerscope.cli.console import FORMAT, Format, answer, show
from layerscope.cli.record import keep, writable

if TYPE_CHECKING:
    from layerscope.tuning.healing import Healing

_OUT = typer.Option(None, "--out", "-o", callback=writable, help="Put the healed checkpoint and a record here.")


@command(
    "heal",
    panel=console.LOSE,
    examples=[
        "layerscope heal path/to/llama --without 13-19,27 --task corpus.txt -o healed",
        "layerscope heal path/to/classifier --without 4-6 --task sst2 --distill -o healed",
    ],
    left_out={"plan": "it is --without"},
    float32=lambda given: given["method"] == "finetune",
)
def heal(
    given: Given,
    without: str | None = typer.Option(
        None, "--without", help="The blocks to leave out: 13-19,27. If not given, the model is one that was cut before."
    ),
    out: Path | None = _OUT,
    format: Format = FORMAT,
) -> None:
    """Cut a model, train what is left for a short while, save it, and show its score before and after.

    A language model learns from running text, a classifier from labels or from the uncut model's answers, an embedding
    model from the uncut model's embeddings.
    """
    from layerscope.distributed import Team
    from layerscope.models.lineage import RECORD
    from layerscope.models.sources import folder_of
    from layerscope.store import atomic_folder, check_free

    if out is not None:
        check_free(out, RECORD, folder_of(given["model"]))
    healing = given.call("heal", plan=None if without is None else f"without {without}")
    if not Team.current().is_main:
        return
    cut = "" if without is None else f" without blocks {without}"
    title = f"{given.label('model')}{cut} healed on {given['task']}"
    if format is Format.json:
        show(healing.frame.to_dict("records"), format)
    else:
        _show_scores(healing, title)
        _show_training(healing)
        print("\n".join(map(str, healing.findings())))
    if out is not None:
        with atomic_folder(out, RECORD) as staging:  # both or neither
            healing.write(staging)
            settings: dict[str, Any] = {"without": without, "method": given["method"] or "lora"}
            settings |= {"strategy": given["strategy"], "distill": given["distill"]}
            keep(staging, "heal", title, {"healing": healing}, tables=False, final=out, **settings)
    if healing.plan is not None:
        answer().choice = {"plan": str(healing.plan), "keep": list(healing.plan.keep)}
    answer().saved = None if out is None else {"folder": str(out), "how": "reopened and compared"}
    if format is Format.table:
        kept = (
            "The checkpoint is kept in the store; the same command with -o FOLDER copies it, and trains nothing again."
        )
        print(kept if out is None else f"Saved in {out}, reopened and compared.")


_SETTINGS = ("method", "strategy", "teacher", "mix", "seed")
_COSTS = ("steps", "learning_rate", "tokens", "trainable", "parameters", "seconds")


def _show_scores(healing: Healing, title: str) -> None:
    """Print the score of every stage, and how much better the healed model is, with its interval."""
    rows = []
    for stage, score in healing.scores.items():
        gain = healing.gains.get(stage)
        ends = (None, None, None) if gain is None else (gain.value, gain.low, gain.high)
        over = dict(zip(("healed_gains", "low", "high"), ends, strict=True))
        rows.append({"model": stage, healing.metric: score, **over})
    gains = "; healed gains: how much better the healed model is on the same rows, with a 95% interval"
    columns = _filled(rows)
    show(
        [{name: row[name] for name in columns} for row in rows],
        Format.table,
        f"{title}, {healing.metric} on held-out texts{gains * ('low' in columns)}",
    )


def _show_training(healing: Healing) -> None:
    """Print what was trained and what that took; settings that are the same in every row stand in the title."""
    rows = healing.frame.to_dict("records")
    filled = _filled(rows)
    same = [name for name in _SETTINGS if name in filled and len({row[name] for row in rows}) == 1]
    settings = ", ".join(f"{name} {rows[0][name]}" for name in same)
    columns = [name for name in (*_SETTINGS, *_COSTS) if name in filled and name not in same]
    show([{name: row[name] for name in columns} for row in rows], Format.table, f"Training and cost: {settings}")


def _filled(rows: list[dict[Any, Any]]) -> list[Any]:
    """Return the columns in which some row has a value."""

    def empty(value: Any) -> bool:
        return value is None or value == "" or (isinstance(value, float) and math.isnan(value))

    return [name for name in rows[0] if not all(empty(row[name]) for row in rows)]
