"""What patches give back of cut models, against the goals that were set before: writes patch.md beside this.

    python docs/results/patch.py decoders --model SmolLM2-135M=FOLDER --text wiki-01.txt --test wiki-02.txt --other sst2
    python docs/results/patch.py classifiers --model bge-small=FOLDER --task sst2 --task mrpc --task rte
    python docs/results/patch.py embeddings --model bge-small=FOLDER --task stsb
    python docs/results/patch.py lora --model SmolLM2-135M=FOLDER --text wiki-01.txt --test wiki-02.txt

Spans and texts are others than those on which the method was chosen. Cases are kept in patch.json as they are done, and
the same command goes on from there; `page` makes the page again. ReplaceMe's form, which multiplies what the last
matrix of the feed-forward part gives by a map, is solved on the same tokens, for comparison only.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import layerscope as ls
from layerscope.cutting import patch as patches
from layerscope.cutting.cut import cut
from layerscope.cutting.patch import RIDGES, Fold, Patches, Request, Variant
from layerscope.cutting.patch_texts import PatchTexts, deal
from layerscope.cutting.plan import LayerPlan
from layerscope.data import Task
from layerscope.evaluation.divergence import DivergenceEvaluator
from layerscope.evaluation.evaluator import Evaluator
from layerscope.evaluation.perplexity import PerplexityEvaluator
from layerscope.models import Model, Replay
from layerscope.similarity.moments import Moments
from layerscope.store import write_json, write_text

HERE = Path(__file__).resolve().parent
_DECODED = ("whole", "cut", "patched", "replaceme")
RESULTS, PAGE = "patch.json", "patch.md"
SIZES = (3, 6)  # blocks of a gap in the middle
LEAST = 0.1  # nats that a cut must cost to be counted
# Spans on which the method was chosen or that were seen while it was; they are left out.
SEEN = {"SmolLM2": ((15, 15), (14, 16), (14, 19)), "Qwen2.5": ((11, 13), (10, 15), (12, 12))}
GOALS = {
    "3 blocks": ("share of the loss regained, gaps of 3 middle blocks", 0.45),
    "6 blocks": ("share of the loss regained, gaps of 6 middle blocks", 0.40),
    "3 blocks, other": ("KL from the whole model removed on another domain, gaps of 3", 0.25),
    "6 blocks, other": ("KL from the whole model removed on another domain, gaps of 6", 0.15),
    "sink": ("share of the loss regained, the block that makes the largest states", 0.50),
    "two thirds": ("points of accuracy below the whole classifier at two thirds of the depth, at most", 1.0),
    "half": ("points of accuracy below the whole classifier at half of the depth, at most", 5.0),
    "embeddings": ("share of the Spearman correlation regained, against the better plain pooling", 0.50),
}


def spans(name: str, depth: int, size: int) -> list[tuple[int, int]]:
    """The gaps of a size in the middle third of a model, every other one, without those that were seen before."""
    seen = [span for begins, found in SEEN.items() if name.startswith(begins) for span in found]
    starts = range(math.ceil(depth / 3) + 1, max(2 * depth // 3 - size + 2, math.ceil(depth / 3) + 2), 2)
    return [(start, start + size - 1) for start in starts if (start, start + size - 1) not in seen]


def sink_block(model: Model, evaluator: Evaluator) -> int:
    """The block after which the longest state, over the median length, has grown most."""
    ids = torch.as_tensor(evaluator.encoded()[0].ids)[None].to(model.device)
    with torch.inference_mode():
        states = Replay(evaluator.subject, {"input_ids": ids}).states
    lengths = [state[0].double().norm(dim=-1) for state in states]
    sizes = np.log([float(each.max() / each.median()) for each in lengths])
    return int(np.diff(sizes).argmax()) + 1


def multiplied(moments: Moments, request: Request, ridge: float) -> Fold:
    """ReplaceMe's form: the map T of least |y - T W x|^2 + r |T - 1|^2, folded into the matrix as T W.

    What W gives is linear in what it reads, so that its moments follow from those of x.
    """
    place = request.place
    old = place.old.double().to(moments.device)
    module: Any = place.module
    shift = module.bias.detach().to(old) if place.constant else torch.zeros(len(old)).to(old)
    x, y, n = moments.mean(0), moments.mean(1), moments.weight
    given = old @ x + shift
    square = old @ moments.scatter(0, 0) @ old.T + n * torch.outer(given, given)
    cross = moments.scatter(1, 0) @ old.T + n * torch.outer(y, given)
    eye = torch.eye(len(old)).to(old)
    strength = ridge * float(square.diagonal().mean())
    found = eye + torch.linalg.solve(square + strength * eye, (cross - square).T).T
    weight, like = found @ old, next(place.module.parameters())
    weight = (weight.T if place.transposed else weight).to(like).contiguous()
    return Fold(place.block, place.path, weight, (found @ shift).to(like) if place.constant else None, ridge, 0.0)


def replaced(model: Model, plan: LayerPlan, texts: PatchTexts) -> Variant | None:
    """The plan with ReplaceMe's form, its ridge chosen on the texts that choose; None where a norm stands between."""
    ((before, target),) = patches.gaps(plan, model.depth)
    request = Request(Variant(plan), patches.block_place(model, before), target)
    if request.place.elements:
        return None
    (moments,) = patches.gathered(texts.solving, model, [request])
    assert isinstance(moments, Moments)
    tried = [Variant(plan), *(Variant(plan, (multiplied(moments, request, ridge),)) for ridge in RIDGES[1::2])]
    found = patches.losses(patches.answers(texts.choosing, model, tried))[1:]
    return tried[int(found.argmin())]


def decoder_case(
    model: Model, plan: LayerPlan, texts: PatchTexts, test: Evaluator, others: tuple[Evaluator, Evaluator]
) -> dict[str, Any]:
    """The losses of whole, cut, patched and ReplaceMe's form on the test texts, and on those of another domain."""
    started = time.perf_counter()
    (found,) = Patches(model, [plan], texts).solved()
    seconds = time.perf_counter() - started
    variants = {"cut": Variant(plan), "patched": Variant(plan, found.folds)}
    if (theirs := replaced(model, plan, texts)) is not None:
        variants["replaceme"] = theirs
    parts = {"nll": test, "nll_other": others[0], "kl_other": others[1]}
    measured = {}
    for part, evaluator in parts.items():
        found_losses = patches.losses(patches.answers(evaluator, model, list(variants.values())))
        measured[part] = dict(zip(("whole", *variants), map(float, found_losses), strict=True))
    return {**measured, "applied": found.applied, "tried": list(found.tried), "seconds": round(seconds, 1)}


def decoders(options: argparse.Namespace, kept: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """Gaps of 3 and 6 blocks and the block that makes the largest states, of every model."""
    for name, source in options.models:
        model, scored = ls.load(source, device=options.device), options.scored or 64
        data, test_data, other = (ls.task(path, kind="text") for path in (options.text, options.test, options.other))
        texts = deal(model, data, limit=options.limit, max_length=options.max_length)
        length = texts.solving.reading.max_length
        test = first(PerplexityEvaluator(model, test_data, test_data.split(), length), scored)
        beside = first(PerplexityEvaluator(model, other, other.split(), length), scored)
        apart = DivergenceEvaluator(model, other, texts_of(other, 4 * scored), length, batch_tokens=length)
        wanted = {f"{size} blocks": spans(name, model.depth, size) for size in SIZES}
        wanted["sink"] = [(block := sink_block(model, texts.solving), block)]
        for row, found in wanted.items():
            for span in found[: options.spans]:
                key = f"decoders/{name}/{row}/{span[0]}-{span[1]}"
                if key not in kept and span[0] > 1:
                    plan = LayerPlan.skipped(model.depth, *span)
                    yield key, decoder_case(model, plan, texts, test, (beside, apart))


def first(evaluator: Any, count: int) -> Any:
    """The first windows of an evaluator."""
    return evaluator.subset(slice(count)) if len(evaluator.examples) > count else evaluator


def texts_of(task: Task, count: int) -> Any:
    return task.split().take(slice(count))


def classifiers(options: argparse.Namespace, kept: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """Models that are tuned on a task, truncated at two thirds and at half of their depth."""
    for name, source in options.models:
        for task_name in options.task:
            task = ls.task(task_name)
            keys = {row: f"classifiers/{name}/{task_name}/{row}" for row in ("two thirds", "half")}
            if all(key in kept for key in keys.values()):
                continue
            few = {
                "max_steps": options.steps,
                "max_length": options.max_length,
                "batch": options.batch or 32,
                "learning_rate": 5e-5,
            }
            tuned = ls.load(ls.tune(source, task, validation_limit=200, **few).model, device=options.device)
            texts = deal(tuned, task, limit=options.limit or 200, max_length=options.max_length, like=task)
            depths = {"two thirds": round(2 * tuned.depth / 3), "half": tuned.depth // 2}
            plans = {row: LayerPlan.truncated(tuned.depth, depth) for row, depth in depths.items()}
            found = dict(zip(plans, Patches(tuned, list(plans.values()), texts).solved(), strict=True))
            score = {"limit": options.scored, "max_length": options.max_length}
            whole = ls.evaluate(tuned, task, **score)
            for row, plan in plans.items():
                smaller = cut(tuned, plan)
                plain = float(ls.evaluate(smaller, task, **score))
                patches.apply(found[row], smaller, texts)
                after = float(ls.evaluate(smaller, task, **score))
                made = {"keep": len(plan.keep), "n": whole.n, "texts": len(texts.learned)}
                yield keys[row], {**made, "whole": float(whole), "cut": plain, "patched": after}


def embeddings(options: argparse.Namespace, kept: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """Embedding models at five sixths, two thirds and half of their depth, on scored pairs."""
    for name, source in options.models:
        model = ls.load(source, device=options.device)
        for task_name in options.task:
            task = ls.task(task_name)
            depths = sorted({round(5 * model.depth / 6), round(2 * model.depth / 3), model.depth // 2}, reverse=True)
            plans = [LayerPlan.truncated(model.depth, depth) for depth in depths]
            if all(f"embeddings/{name}/{task_name}/{len(plan.keep)}" in kept for plan in plans):
                continue
            texts = deal(model, task, limit=options.limit or 1000, max_length=options.max_length)
            score = {"limit": options.scored, "max_length": options.max_length}
            plainly = {mode: ls.task(task_name, embedding=mode) for mode in ("mean", "cls")}
            scores = [ls.evaluate(model, each, **score) for each in (task, *plainly.values())]
            whole = max(map(float, scores))
            for plan, found in zip(plans, Patches(model, plans, texts).solved(), strict=True):
                smaller = cut(model, plan)
                plain = {"own": float(ls.evaluate(smaller, task, **score))}
                plain |= {mode: float(ls.evaluate(smaller, each, **score)) for mode, each in plainly.items()}
                patches.apply(found, smaller, texts)
                after = float(ls.evaluate(smaller, task, **score))
                made = {"keep": len(plan.keep), "n": scores[0].n, "texts": len(texts.learned)}
                row = {**made, "whole": whole, **plain, "patched": after}
                yield f"embeddings/{name}/{task_name}/{len(plan.keep)}", row


def lora(options: argparse.Namespace, kept: dict[str, Any]) -> Iterable[tuple[str, Any]]:
    """LoRA from the plain cut and from the patched one, after 50 and 300 steps."""
    for name, source in options.models:
        model = ls.load(source, device=options.device)
        span = spans(name, model.depth, SIZES[-1])[0]
        plan, data = LayerPlan.skipped(model.depth, *span), ls.task(options.text, kind="text")
        length = options.max_length or 512
        few: dict[str, Any] = {"max_length": length, "batch": options.batch or 16, "train_limit": options.limit}
        test_data = {"max_length": length, "limit": options.scored, "metric": "nll"}
        for steps in (50, 300):
            key = f"lora/{name}/{span[0]}-{span[1]}/{steps}"
            if key in kept:
                continue
            losses = {}
            for start, texts in (("plain", None), ("patched", data)):
                healing = ls.heal(model, plan, data, steps=steps, patch=texts, metric="nll", **few)
                losses[start] = float(ls.evaluate(healing.model, ls.task(options.test, kind="text"), **test_data))
            yield key, losses


PARTS = {"decoders": decoders, "classifiers": classifiers, "embeddings": embeddings, "lora": lora}


def regained(rows: list[dict[str, float]], name: str = "patched") -> float:
    """The share of what cuts cost that is back, pooled over the rows; NaN where they cost nothing."""
    rows = [row for row in rows if name in row]  # a norm in the way leaves no other form
    cost = sum(row["cut"] - row["whole"] for row in rows)
    return sum(row["cut"] - row[name] for row in rows) / cost if cost > 0 else math.nan


def page(kept: dict[str, Any]) -> str:
    """The page that shows what was found; what was not run has no row."""
    cases = {tuple(key.split("/")): value for key, value in kept.items()}
    lines = [
        "# Patches",
        "",
        "Cut models that are repaired without training: what the cut takes away is solved for on unlabelled texts,",
        "and folded into weights that stay ([Heal what was cut](../howto/heal.md#without-training-a-patch)). Spans and",
        "texts are others than those on which the method was chosen. Written by `python docs/results/patch.py`.",
        "",
    ]
    lines += _decoders({key[1:]: value for key, value in cases.items() if key[0] == "decoders"})
    lines += _classifiers({key[1:]: value for key, value in cases.items() if key[0] == "classifiers"})
    lines += _embeddings({key[1:]: value for key, value in cases.items() if key[0] == "embeddings"})
    lines += _lora({key[1:]: value for key, value in cases.items() if key[0] == "lora"})
    return "\n".join(lines).rstrip() + "\n"


def _decoders(cases: dict[tuple[str, ...], Any]) -> list[str]:
    if not cases:
        return []
    lines = ["## Language models", "", "Loss on a test text of the calibration's domain, in nats.", ""]
    lines += ["| model | blocks gone | whole | cut | patched | ReplaceMe's form | regained | ReplaceMe's |"]
    lines += ["| --- " * 8 + "|"]
    for (name, _, span), case in cases.items():
        row = case["nll"]
        shares = " | ".join(_percent(regained([row], which)) for which in ("patched", "replaceme"))
        values = " | ".join(f"{row[which]:.3f}" if which in row else "-" for which in _DECODED)
        lines.append(f"| {name} | {span} | {values} | {shares} |")
    lines += ["", "| goal | wanted | found | ReplaceMe's form | spans |", "| --- | --- | --- | --- | --- |"]
    asked = [(row, part) for part in ("nll", "kl_other") for row in (*(f"{size} blocks" for size in SIZES), "sink")]
    for row, part in asked[:-1]:
        found = [case for (_, kind, _), case in cases.items() if kind == row]
        counted = [case[part] for case in found if case["nll"]["cut"] - case["nll"]["whole"] >= LEAST]
        words, goal = GOALS[row if part == "nll" else f"{row}, other"]
        if counted:
            shares = " | ".join(_percent(regained(counted, which)) for which in ("patched", "replaceme"))
            lines.append(f"| {words} | {goal:.0%} | {shares} | {len(counted)} |")
    worse = [span for (_, _, span), case in cases.items() if case["nll"]["patched"] > case["nll"]["cut"] + 1e-6]
    return [*lines, "", f"Worse than the plain cut on the test text: {', '.join(worse) or 'none'}.", ""]


def _classifiers(cases: dict[tuple[str, ...], Any]) -> list[str]:
    if not cases:
        return []
    lines = ["## Classifiers", ""]
    lines += [f"Truncated at two thirds and at half of their depth; labels are not used. {_counts(cases)}", ""]
    lines += ["| model | task | blocks left | whole | cut | patched | points below | goal |", "| --- " * 8 + "|"]
    for (name, task, row), case in cases.items():
        below, goal = 100 * (case["whole"] - case["patched"]), GOALS[row][1]
        values = " | ".join(f"{100 * case[which]:.1f}" for which in ("whole", "cut", "patched"))
        met = "met" if below <= goal else "not met"
        lines.append(f"| {name} | {task} | {case['keep']} | {values} | {below:.1f} | at most {goal:g}: {met} |")
    return [*lines, ""]


def _embeddings(cases: dict[tuple[str, ...], Any]) -> list[str]:
    if not cases:
        return []
    goal = GOALS["embeddings"][1]
    lines = ["## Embedding models", ""]
    lines += [
        "Spearman correlation on scored pairs; plain: the best of the model's own pooling, the mean and the first"
    ]
    lines += [f"token. {_counts(cases)}", ""]
    lines += ["| model | task | blocks left | whole | plain | patched | regained | goal |", "| --- " * 8 + "|"]
    for (name, task, _), case in cases.items():
        plain = max(case.get(which, -1.0) for which in ("own", "mean", "cls"))
        cost = case["whole"] - plain
        share = (case["patched"] - plain) / cost if cost > 0 else math.nan
        met = "met" if share >= goal else "not met"
        values = " | ".join(f"{100 * value:.1f}" for value in (case["whole"], plain, case["patched"]))
        lines.append(f"| {name} | {task} | {case['keep']} | {values} | {_percent(share)} | {goal:.0%}: {met} |")
    return [*lines, ""]


def _counts(cases: dict[tuple[str, ...], Any]) -> str:
    """How many rows were scored, and on how many texts patches were solved, chosen and judged."""
    scored, texts = (sorted({case[name] for case in cases.values() if name in case}) for name in ("n", "texts"))
    if not scored:
        return ""
    patched = " or ".join(f"{count:,}" for count in texts)
    return f"Scored on {' or '.join(f'{n:,}' for n in scored)} rows, patched with {patched} texts."


def _lora(cases: dict[tuple[str, ...], Any]) -> list[str]:
    if not cases:
        return []
    lines = ["## Training from a patched start", "", "Loss on the test text after LoRA, in nats.", ""]
    lines += ["| model | blocks gone | steps | plain start | patched start |", "| --- " * 5 + "|"]
    for (name, span, steps), case in cases.items():
        lines.append(f"| {name} | {span} | {steps} | {case['plain']:.4f} | {case['patched']:.4f} |")
    return [*lines, ""]


def _percent(share: float) -> str:
    return "undefined" if math.isnan(share) else f"{share:.0%}"


def main(arguments: list[str] | None = None) -> None:
    """Run a part, keep every case as it is done, and write the page."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("part", choices=[*PARTS, "page"])
    parser.add_argument("--model", action="append", default=[], help="NAME=FOLDER; may be given again")
    parser.add_argument("--task", action="append", default=[], help="a task to tune on, or with scored pairs")
    parser.add_argument("--text", help="running text to solve on")
    parser.add_argument("--test", help="running text to score on")
    parser.add_argument("--other", default="sst2", help="texts of another domain")
    parser.add_argument("--limit", type=int, help="texts or windows to solve, choose and hold out")
    parser.add_argument("--scored", type=int, help="windows (64 if not given), or rows (all) that are scored")
    parser.add_argument("--max-length", type=int, default=None)
    parser.add_argument("--spans", type=int, default=3, help="spans of each size")
    parser.add_argument("--steps", type=int, default=1000, help="of tuning a classifier")
    parser.add_argument("--batch", type=int, help="of tuning a classifier (32), or of LoRA (16)")
    parser.add_argument("--device")
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args(arguments)
    options.models = [tuple(each.split("=", 1)) for each in options.model]
    path = options.out / RESULTS
    kept: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    if options.part != "page":
        for key, case in PARTS[options.part](options, kept):
            kept[key] = case
            write_json(path, kept)
            print(key, case, file=sys.stderr, flush=True)
    write_text(options.out / PAGE, page(kept))


if __name__ == "__main__":
    main()
