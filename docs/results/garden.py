"""Do the garden's models show the papers' pictures? CKA and truncation on SST-2, written to garden.md beside this.

Run with: python docs/results/garden.py [--models bert-s0 roberta-s0 ..] [--limit 2000] [--train-limit N]. Each model is
fine-tuned as garden/scores.py does it (a run that is in the store is not done again); SST-2 comes from LAYERSCOPE_DATA.
What was found is kept in garden.json; with --models the page is written anew with the others as they were, and with
--models alone (no names) nothing is measured and the page is written from garden.json.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent.parent / "garden"), str(HERE.parent.parent / "garden" / "src")]

import scores  # noqa: E402 (the path above is where it is)

import layerscope as ls  # noqa: E402

FOUND = HERE / "garden.json"
MODELS = ("bert-s0", "roberta-s0", "albert-s0", "electra-s0")
TASK = "sst2"
NEAR = 0.02  # what a cut may cost
_LIMITS = {"train_limit": "trained on the first", "limit": "scored on the first"}
CHANGED = 0.05  # how much less CKA with the untuned model counts as changed by tuning


def top_block(blocks: ls.Blocks) -> tuple[int, float, float]:
    """The first layer of the last block of layers, mean CKA within that block, and between it and the layers below."""
    first = int(blocks.boundaries[-1])
    layers = [int(name) for name in blocks.similarity.row_axis.layers]
    values = np.asarray(blocks.similarity.values)
    top = np.asarray([layer >= first for layer in layers])
    below = np.asarray([1 <= layer < first for layer in layers])
    inside = values[np.ix_(top, top)]
    within = float(np.nanmean(inside[~np.eye(len(inside), dtype=bool)])) if len(inside) > 1 else float("nan")
    return first, within, float(np.nanmean(values[np.ix_(top, below)]))


def cuttable(curve: Any) -> int:
    """How many top blocks can be cut, one after another, before the score is more than NEAR below the whole model's."""
    found = list(curve.sort_values("layer", ascending=False)["score"])
    kept = [score >= found[0] - NEAR for score in found]
    return (kept.index(False) if False in kept else len(kept)) - 1


def sentences(blocks: ls.Blocks, across: Any, curve: Any) -> list[str]:
    """Whether the papers' pattern shows, from the numbers."""
    depth = int(curve["layer"].max())
    first, within, between = top_block(blocks)
    shown = blocks.p_value < 0.05 and within > between
    values = np.asarray(across.values)
    layers = [int(layer) for layer in across.row_axis.layers]
    top, low = [i for i, k in enumerate(layers) if k >= first], [i for i, k in enumerate(layers) if 1 <= k < first]
    low_same, top_same = (float(np.nanmean([values[i, i] for i in part])) for part in (low, top))
    cut, learned = cuttable(curve), float(curve["score"].max()) >= float(curve["majority"].iloc[0]) + 5 * NEAR
    scored = dict(zip(curve["layer"], curve["score"], strict=True))
    return [
        f"Blocks: {'yes' if shown else 'no'}. The layers split at {', '.join(blocks.boundaries)} (strength "
        f"{blocks.strength:.2f}, p = {blocks.p_value:.3g}); layers {first}..{depth} have a mean CKA of {within:.2f} "
        f"with one another and of {between:.2f} with those below.",
        f"Tuning changes the top: {'yes' if low_same - top_same >= CHANGED else 'no'}. A tuned layer and the same "
        f"layer untuned have a mean CKA of {top_same:.2f} in layers {first}..{depth} and of {low_same:.2f} in layers "
        f"1..{first - 1}.",
        f"Top blocks can go: {'yes' if cut > 0 and learned else 'no'}. The whole model scores {scored[depth]:.3f}; "
        f"{cut} of {depth} blocks can be cut from the top without training within {100 * NEAR:.0f} points "
        f"({scored[depth - cut]:.3f})." + ("" if learned else " It has not learned the task, so that says nothing."),
    ]


def measured(name: str, limit: int | None, train_limit: int | None) -> dict[str, Any]:
    """What is said of a model, and its truncation curve; its figure is written."""
    changes = {} if train_limit is None else {"train_limit": train_limit}
    run = ls.tune(f"garden:{name}", TASK, seed=0, **scores.SETTINGS[TASK] | changes)
    tuned, original = run.model, f"garden:{name}"
    options: dict[str, Any] = {"task": TASK, "limit": limit, "pool": "cls", "max_length": 128}
    same = ls.compare(tuned, names=[f"{name}, tuned"], **options)
    across = ls.compare(tuned, original, names=[f"{name}, tuned", name], **options)
    curve = ls.truncation_curve(tuned, TASK, limit=limit, max_length=128)
    ls.panels([same, across], picture(name))
    kept = ["layer", "score", "majority", "metric"]
    return {
        "sentences": sentences(ls.blocks(same), across, curve),
        "curve": curve[kept].to_dict(orient="list"),
        "limit": limit,
        "train_limit": train_limit,
    }


def picture(name: str) -> Path:
    return HERE / f"garden-{name}.png"


def shown(found: dict[str, Any]) -> dict[str, int]:
    """In how many models each pattern shows."""
    answers = [sentence.split(". ")[0].split(": ") for one in found.values() for sentence in one["sentences"]]
    return {what: answers.count([what, "yes"]) for what in dict.fromkeys(what for what, _ in answers)}


def page(found: dict[str, Any]) -> str:
    """The page, from what was found of each model."""
    lines = [
        "# Do the garden's models show the papers' pictures?",
        "",
        "Written by `python docs/results/garden.py`. Each model is fine-tuned on SST-2 (`garden/scores.py` has the",
        "settings; seed 0) and compared on validation by linear CKA of the summary token: its own layers with one",
        "another (FT-FT, left) and with those of the model before tuning (FT-ORIG, right). Layer 0 has no value there:",
        "its summary token is the same for every text. Phang et al. (2021) find a block of like layers at the top of a",
        "tuned model, unlike what is below and unlike the untuned model's, and that these top blocks can be cut",
        "without training: the tuned head reads a lower layer. Whether that shows is computed from the numbers: blocks",
        "by `ls.blocks` (p below 0.05, and the top block more like itself than like what is below), cuts by a loss of",
        f"at most {100 * NEAR:.0f} points.",
        "",
        f"Of {len(found)} models: " + "; ".join(f"{what.lower()} in {n}" for what, n in shown(found).items()) + ".",
        "",
    ]
    for name, one in found.items():
        some = [f"{what} {one[key]:,} rows" for key, what in _LIMITS.items() if one[key] is not None]
        lines += [f"## {name}" + (f" ({', '.join(some)})" if some else ""), ""]
        lines += [f"![CKA of {name}]({picture(name).name})", "", *(f"- {line}" for line in one["sentences"]), ""]
    curves = {name: one["curve"] for name, one in found.items()}
    columns = {name: dict(zip(curve["layer"], curve["score"], strict=True)) for name, curve in curves.items()}
    lines += [
        "## Cut from the top, nothing trained",
        "",
        "![truncation curves](garden-truncation.png)",
        "",
        "| layer that the head reads | " + " | ".join(columns) + " |",
        "| --- |" + " --- |" * len(columns),
    ]
    for layer in next(iter(columns.values())):
        lines.append(f"| {layer} | " + " | ".join(f"{column[layer]:.3f}" for column in columns.values()) + " |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="*", default=list(MODELS))
    parser.add_argument("--limit", type=int, default=None, help="rows of validation")
    parser.add_argument("--train-limit", type=int, default=None, help="rows of train (to try things)")
    options = parser.parse_args()
    found = json.loads(FOUND.read_text(encoding="utf-8")) if FOUND.is_file() else {}
    for name in options.models:
        found[name] = measured(name, options.limit, options.train_limit)
        FOUND.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(name, *found[name]["sentences"], sep="\n", flush=True)
    Path(__file__).with_suffix(".md").write_text(page(found), encoding="utf-8")
    curves = {name: pandas.DataFrame(one["curve"]) for name, one in found.items()}
    ls.plot_truncation(curves, HERE / "garden-truncation.png")


if __name__ == "__main__":
    main()
