"""Do the garden's models show the papers' pictures? CKA and truncation on SST-2, written to garden.md beside this.

Run with: python docs/results/garden.py. Each model is fine-tuned as garden/scores.py does it (a training that is in
the store is not done again); SST-2 comes from LAYERSCOPE_DATA or the hub. The numbers are kept in garden.json,
from which the page is written.
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
from layerscope.store import write_json, write_text  # noqa: E402

MODELS = ("bert-s0", "roberta-s0", "albert-s0", "electra-s0")
TASK = "sst2"
CURVE = ["layer", "score", "low", "high", "majority", "metric", "task", "n"]  # the columns that garden.json keeps
NEAR = 0.02  # what a cut may cost
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


def cuttable(curve: pandas.DataFrame) -> int:
    """How many top blocks can be cut, one after another, before the score is more than NEAR below the whole model's."""
    found = list(curve.sort_values("layer", ascending=False)["score"])
    kept = [score >= found[0] - NEAR for score in found]
    return (kept.index(False) if False in kept else len(kept)) - 1


def numbers(
    blocks: ls.Blocks, across: ls.Similarity, curve: ls.Truncation, beside: dict[str, ls.Blocks]
) -> dict[str, Any]:
    """What the sentences are made of; `beside` are the blocks of the model untuned and of its untrained twin."""
    first, within, between = top_block(blocks)
    values = np.asarray(across.values)
    layers = [int(layer) for layer in across.row_axis.layers]
    top, low = [i for i, k in enumerate(layers) if k >= first], [i for i, k in enumerate(layers) if 1 <= k < first]
    low_same, top_same = (float(np.nanmean([values[i, i] for i in part])) for part in (low, top))
    return {
        "boundaries": list(blocks.boundaries),
        "strength": blocks.strength,
        "strength_low": blocks.low,
        "strength_high": blocks.high,
        "p": blocks.p_value,
        "beside": {what: {"strength": other.strength, "p": other.p_value} for what, other in beside.items()},
        "within": within,
        "between": between,
        "top_same": top_same,
        "low_same": low_same,
        "curve": curve.frame[CURVE].to_dict(orient="list"),
    }


def answers(one: dict[str, Any]) -> dict[str, bool | None]:
    """Whether each of the papers' patterns shows in a model; None where that has not been tested."""
    curve = pandas.DataFrame(one["curve"])
    learned = float(curve["score"].max()) >= float(curve["majority"].iloc[0]) + 5 * NEAR
    return {
        "Blocks": one["p"] < 0.05 and one["within"] > one["between"] if "p" in one else None,
        "Tuning changes the top": one["low_same"] - one["top_same"] >= CHANGED,
        "Top blocks can go": cuttable(curve) > 0 and learned,
    }


def sentences(one: dict[str, Any]) -> list[str]:
    """The patterns, yes or no, with the numbers that say so."""
    curve = pandas.DataFrame(one["curve"])
    depth, first, cut = int(curve["layer"].max()), int(one["boundaries"][-1]), cuttable(curve)
    scored = dict(zip(curve["layer"], curve["score"], strict=True))
    said = [
        f"The layers split best at {', '.join(one['boundaries'])} (strength {one['strength']:.2f}{_tested(one)}); "
        f"layers {first}..{depth} have a mean CKA of {one['within']:.2f} with one another and of {one['between']:.2f} "
        "with those below.",
        f"A tuned layer and the same layer untuned have a mean CKA of {one['top_same']:.2f} in layers {first}..{depth} "
        f"and of {one['low_same']:.2f} in layers 1..{first - 1}.",
        f"The whole model scores {scored[depth]:.3f}; {cut} of {depth} blocks can be cut from the top without training "
        f"within {100 * NEAR:.0f} points ({scored[depth - cut]:.3f}).",
    ]
    spelled = {True: "yes", False: "no", None: "not tested"}
    shown = answers(one).items()
    return [f"{what}: {spelled[yes]}. {rest}" for (what, yes), rest in zip(shown, said, strict=True)]


def _tested(one: dict[str, Any]) -> str:
    """The strength's interval, its p-value, and what stands beside it."""
    if "p" not in one:
        return ", measured before `ls.layer_blocks` had a test that holds, and to be measured again"
    beside = "; ".join(f"{what} {other['strength']:.2f}, p = {other['p']:.3g}" for what, other in one["beside"].items())
    return f", 95% interval {one['strength_low']:.2f} to {one['strength_high']:.2f}, p = {one['p']:.3g}; {beside}"


def measured(name: str, limit: int | None, train_limit: int | None, out: Path) -> dict[str, Any]:
    """A model's numbers; its figure is written."""
    changes = {} if train_limit is None else {"train_limit": train_limit}
    training = ls.tune(f"garden:{name}", TASK, seed=0, **scores.SETTINGS[TASK] | changes)
    tuned, original = training.model, f"garden:{name}"
    options: dict[str, Any] = {"task": TASK, "limit": limit, "pool": "cls", "max_length": 128}
    same = ls.compare(tuned, names=[f"{name}, tuned"], ci=0.95, **options)
    sources = {"untuned": original, "untrained": f"random:{original}"}
    beside = {what: ls.layer_blocks(ls.compare(source, **options)) for what, source in sources.items()}
    across = ls.compare(tuned, original, names=[f"{name}, tuned", name], **options)
    curve = ls.truncation_curve(tuned, TASK, limit=limit, max_length=128)
    ls.panels({"FT-FT": same, "FT-ORIG": across}, out / picture(name))
    return numbers(ls.layer_blocks(same), across, curve, beside)


def picture(name: str) -> str:
    return f"garden-{name}.png"


def page(found: dict[str, Any]) -> str:
    """The page, from the numbers of each model."""
    each = [answers(one) for one in found.values()]
    shown = {what: _count([one[what] for one in each]) for what in each[0]}
    lines = [
        "# Do the garden's models show the papers' pictures?",
        "",
        "Written by `python docs/results/garden.py`. Each model is fine-tuned on SST-2 (`garden/scores.py` has the",
        "settings; seed 0) and compared on validation by linear CKA of the summary token: its own layers with one",
        "another (FT-FT, left) and with those of the model before tuning (FT-ORIG, right). Layer 0 has no value there:",
        "its summary token is the same for every text. Phang et al. (2021) find a block of like layers at the top of a",
        "tuned model, unlike what is below and unlike the untuned model's, and that these top blocks can be cut",
        "without training: the tuned head reads a lower layer. Whether that shows is computed from the numbers.",
        "Blocks: `ls.layer_blocks` finds steps out of line with gradual change (p below 0.05), and the top block is "
        "more",
        "like itself than like what is below; the split that is named is the best one even where there are none.",
        "Strength is the mean CKA within minus that between blocks, and stands beside that of the model before tuning",
        "and of an untrained twin, which have a best split too. Cuts: a loss of at most",
        f"{100 * NEAR:.0f} points.",
        "",
        f"Of {len(found)} models: " + "; ".join(f"{what.lower()} in {n}" for what, n in shown.items()) + ".",
        "A yes can be weak: each is one tuning, a score on 872 sentences has a standard error of 1.3 points, and a top",
        "block may begin low. The same tuning on a GPU gives somewhat other weights each time, so that scores differ",
        "by up to a point from those of `garden/scores.json`.",
        "",
    ]
    for name, one in found.items():
        lines += [f"## {name}", "", f"![CKA of {name}]({picture(name)})", ""]
        lines += [*(f"- {line}" for line in sentences(one)), ""]
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


def _count(given: list[bool | None]) -> str:
    """How many are yes, and how many are unknown."""
    unknown = given.count(None)
    return f"{given.count(True)}" + (f" ({unknown} not tested)" if unknown else "")


def truncation(curve: dict[str, list[Any]]) -> ls.Truncation:
    """A curve of garden.json as a result; one that was kept without its intervals is drawn without a band."""
    return ls.Truncation(pandas.DataFrame({"low": np.nan, "high": np.nan} | curve), {})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=list(MODELS), help="measure these; the others stay as they were")
    parser.add_argument("--page", action="store_true", help="measure nothing; write the page from garden.json")
    parser.add_argument("--limit", type=int, default=None, help="rows of validation, to try things (with --out)")
    parser.add_argument("--train-limit", type=int, default=None, help="rows of train, to try things (with --out)")
    parser.add_argument("--out", type=Path, default=HERE, help="the folder to write into (default: beside this script)")
    options = parser.parse_args()
    if (options.limit or options.train_limit) and options.out == HERE:
        parser.error("a limit is for trying things: name a folder of its own with --out")
    options.out.mkdir(parents=True, exist_ok=True)
    kept = options.out / "garden.json"
    found = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
    for name in () if options.page else options.models:
        found[name] = measured(name, options.limit, options.train_limit, options.out)
        write_json(kept, found)
        print(name, *sentences(found[name]), sep="\n", flush=True)
    write_text(options.out / "garden.md", page(found))
    curves = {name: truncation(one["curve"]) for name, one in found.items()}
    ls.Truncation.together(curves).plot(options.out / "garden-truncation.png")


if __name__ == "__main__":
    main()
