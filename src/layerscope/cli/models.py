"""`layerscope models`"""

from __future__ import annotations

import typer

from layerscope.cli.output import FORMAT, Format, show


def register(app: typer.Typer) -> None:
    app.command(epilog="Example:  `layerscope models demo:minilm`")(models)


def models(
    model: str | None = typer.Argument(None, help="A model to open and check; without one, the known families."),
    format: Format = FORMAT,
) -> None:
    """The families of models that are known; or what one model is, and whether replay is sound on it."""
    import layerscope as ls

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

    from layerscope.models.selfcheck import faults

    opened = ls.load(model)
    record = {
        "model": model,
        "class": type(opened.network).__name__,
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
