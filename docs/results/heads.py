"""Embedding models and a language model by layer, on real weights: writes docs/results/heads.md.

    LAYERSCOPE_DATA=.. python docs/results/heads.py --bge FOLDER --language FOLDER --text FILE

STS-B must be under LAYERSCOPE_DATA or on the hub. The folders hold bge-small-en-v1.5 and SmolLM2-135M-Instruct, the
file English text; what is not given is left out.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from pathlib import Path
from typing import Any

import layerscope as ls

PAGE = Path(__file__).parent / "heads.md"
INTRODUCTION = """# Embedding models and language models by layer

What a model gives when its upper blocks are cut off and nothing is trained, by `ls.truncation_curve`, on real weights.
Written by `docs/results/heads.py`.
"""


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as Markdown."""
    lines = ["| " + " | ".join(rows[0]) + " |", "| " + " | ".join("---" for _ in rows[0]) + " |"]
    return "\n".join([*lines, *("| " + " | ".join(str(value) for value in row.values()) + " |" for row in rows)])


def _spelled(score: float) -> str:
    return "undefined" if math.isnan(score) else f"{score:.4f}"


def embeddings(models: dict[str, tuple[str, str | None]]) -> str:
    """The Spearman correlation of cosines with STS-B's scores, with the embedding taken from every layer."""
    curves, kept = {}, []
    for name, (source, pool) in models.items():
        model, task = ls.load(source), ls.task("stsb", embedding=pool)
        curves[name] = ls.truncation_curve(model, task).frame["score"].tolist()
        with tempfile.TemporaryDirectory() as folder:
            saved = ls.save(ls.truncate(model, model.depth - 1), Path(folder) / "smaller")
            score = ls.evaluate(ls.load(saved), task)
        kept.append(f"{name} without its last block, saved and opened again: {score:.4f}.")
    depth = max(map(len, curves.values()))
    rows = [
        {"layer": layer, **{name: _spelled(c[layer]) if layer < len(c) else "" for name, c in curves.items()}}
        for layer in range(depth)
    ]
    return (
        "## Embeddings on STS-B (validation, 1,500 pairs)\n\nThe Spearman correlation of the two sentences' cosine "
        f"with the score that people gave them.\n\n{table(rows)}\n\n{' '.join(kept)}\n"
        "\nMiniLM embeds a sentence by the mean of its tokens, bge-small by its first token, which at layer 0 is the "
        "same for every sentence.\n"
    )


def language(source: str, text: str, length: int) -> str:
    """The perplexity of running text with the head on every layer: the logit lens."""
    model, task = ls.load(source), ls.task(text, kind="text")
    curve = ls.truncation_curve(model, task, max_length=length)
    whole = ls.evaluate(model, task, max_length=length)
    rows = [
        {
            "layer": int(row["layer"]),
            "perplexity": f"{row['score']:,.2f}" if row["score"] < 1e6 else f"{row['score']:.1e}",
        }
        for row in curve.frame.to_dict("records")
    ]
    return (
        f"## The logit lens of SmolLM2-135M-Instruct\n\n{int(whole.metrics['tokens']):,} tokens of English Wikipedia "
        f"in windows of {length}; {whole.metrics['bits_per_byte']:.4f} bits per byte as a whole.\n\n{table(rows)}\n"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bge")
    parser.add_argument("--language")
    parser.add_argument("--text")
    parser.add_argument("--length", type=int, default=512)
    given = parser.parse_args()
    models: dict[str, tuple[str, str | None]] = {"all-MiniLM-L6-v2": ("demo:minilm", None)}
    if given.bge:
        models["bge-small-en-v1.5"] = (given.bge, "cls")
    parts = [INTRODUCTION, embeddings(models)]
    if given.language and given.text:
        parts.append(language(given.language, given.text, given.length))
    PAGE.write_text("\n".join(parts), encoding="utf-8")


if __name__ == "__main__":
    main()
