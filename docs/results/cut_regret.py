"""How far every rule for choosing blocks is from the best choice there is: all pairs and all triples of blocks.

    python docs/results/cut_regret.py --model SmolLM2-135M=demo:smollm2 --text wiki-00.txt.xz --seconds 540

Every plan that leaves two or three blocks out is evaluated on the articles that the rules choose on, and on others that
they have not seen. The regret of a rule is the loss of its plan on the others above that of the best of all plans
there. The losses of all plans are kept in cut-regret-NAME.csv as they come, so that the command goes on from there when
it is run again: `--seconds` ends it after the chunk of plans in which that time is over. What is found is kept in
cut-regret.json, from which `language_models.py --from-json` makes the page. With `--questions N` the whole model and
some of its cuts answer the synthetic tasks of `evaluate --generate N`; checkpoints that were patched or healed are put
beside them by `--beside "NAME=FOLDER"`. With `--patch TEXTS` every pair, and the 200 best of larger plans, are patched
on those texts (`ls.heal(.., method="patch")`) and scored again; their losses are in cut-regret-NAME-patched.csv.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import sys
import time
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from language_models import articles, blocks_of, first_tokens, spelled
from language_models_page import HERE, REGRET

import layerscope as ls
from layerscope.cutting.patch import Patches, Variant, answers
from layerscope.cutting.patch import losses as patch_losses
from layerscope.cutting.patch_texts import deal
from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.search import Search, chosen_rules
from layerscope.cutting.sweep import sweep
from layerscope.evaluation.evaluate import make_evaluator
from layerscope.evaluation.evaluator import Evaluator
from layerscope.evaluation.token_evaluator import COUNT, LOSS, bootstrap_of_sums
from layerscope.registry import RULES
from layerscope.store import write_json, write_text

SIZES = (2, 3)
AT_ONCE = 128  # plans of a sweep, at most: so many states wait for a block in memory
ENOUGH = 100_000  # evaluations, so that no search is cut short
SETTINGS = ("window", "texts", "tokens", "choosing_texts", "choosing_tokens")
BOUNDARY = "best on the texts that choose"  # of all plans: what a perfect search would find there
MIDDLE = "a random plan"  # the middle one of all
# With a patch: of which size all plans are patched, how many of the best of another size, and how many in one go.
PATCHED_WHOLE, PATCHED_BEST, PATCHED_AT_ONCE = 2, 200, 16


class Losses:
    """The mean loss of every plan on some texts, such as those that choose and the others, in a table that grows.

    A table that was begun with other settings does not count.
    """

    def __init__(self, path: Path, facts: dict[str, Any], columns: Sequence[str] = ("choosing", "others")) -> None:
        self.path, self.facts, self.columns = path, json.loads(json.dumps(facts)), tuple(columns)
        self.rows: dict[str, tuple[float, ...]] = {}
        if path.is_file():
            head, *lines = path.read_text(encoding="utf-8").splitlines()
            if json.loads(head.removeprefix("# ")) == self.facts:
                table = csv.DictReader(lines)
                self.rows = {row["removed"]: tuple(float(row[name]) for name in self.columns) for row in table}

    def add(self, removed: Sequence[str], *columns: Sequence[float]) -> None:
        for name, *values in zip(removed, *columns, strict=True):
            self.rows[name] = tuple(float(f"{value:.7g}") for value in values)  # as they are read again
        out = io.StringIO()
        out.write(f"# {json.dumps(self.facts)}\n")
        writer = csv.writer(out, lineterminator="\n")
        writer.writerow(("removed", *self.columns))
        writer.writerows((name, *values) for name, values in self.rows.items())
        write_text(self.path, out.getvalue())


def of_articles(joined: str) -> ls.Task:
    """Articles as running text, one per row, so that intervals are over articles."""
    import pandas

    return ls.task(pandas.DataFrame({"text": joined.split("\n\n")}), text="text", kind="text", bos=False)


def losses(evaluator: Evaluator, plans: Sequence[LayerPlan], title: str) -> np.ndarray:
    """The mean loss of each plan over all tokens of an evaluator, in nats."""
    sums = sweep(evaluator, plans, title, note=False).astype(float).sum(axis=1)
    return np.asarray(sums[:, LOSS] / sums[:, COUNT])


def measured(name: str, source: str, options: argparse.Namespace) -> dict[str, Any] | None:
    """What is found of one model; None where the time was over before all plans had been evaluated."""
    start = time.perf_counter()
    model = ls.load(source, dtype=options.dtype)
    texts = articles(options.text)
    facts = {
        "class": type(model.network).__name__,
        "blocks": model.depth,
        "weights": model.spec()["weights"],
        "file": options.text.name,
        "dtype": options.dtype,
        **{setting: getattr(options, setting) for setting in SETTINGS},
    }
    scored, choosing = texts[: options.texts], texts[options.texts : options.texts + options.choosing_texts]
    evaluators = [
        make_evaluator(
            model,
            of_articles(first_tokens(part, model.tokenizer, tokens)),
            max_length=options.window,
            batch_tokens=options.batch_tokens,
            all_rows=True,
        )
        for part, tokens in ((choosing, options.choosing_tokens), (scored, options.tokens))
    ]
    table = Losses(options.out / f"cut-regret-{name.lower()}.csv", facts)
    every = {size: list(combinations(range(1, model.depth + 1), size)) for size in options.sizes}
    wanted = [(), *(gone for size in options.sizes for gone in every[size])]
    missing = [gone for gone in wanted if spelled(list(gone)) not in table.rows]
    for k in range(0, len(missing), AT_ONCE):
        if k and options.seconds and time.perf_counter() - start > options.seconds:
            print(f"{len(missing) - k} of {len(wanted)} plans are left; run it again to go on.", file=sys.stderr)
            return None
        part = missing[k : k + AT_ONCE]
        plans = [without(gone, model.depth) for gone in part]
        values = [losses(evaluator, plans, f"{k + len(part)}/{len(missing)} plans") for evaluator in evaluators]
        table.add([spelled(list(gone)) for gone in part], *values)
    whole = table.rows[""]
    found: dict[str, Any] = {
        **{key: value for key, value in facts.items() if key != "weights"},
        "device": model.device.type,
        "whole": whole[1],
        "sizes": {},
    }
    proposals = proposed(evaluators[0], options.sizes)
    for size in options.sizes:
        names = [spelled(list(gone)) for gone in every[size]]
        picked, others = np.asarray([table.rows[name] for name in names]).T
        ranks = np.argsort(np.argsort(others)) + 1
        best, middle = int(np.argmin(others)), int(np.argsort(others)[len(others) // 2])
        chosen = {rule: names.index(by_size[size]) for rule, by_size in proposals.items() if size in by_size}
        chosen |= {BOUNDARY: int(np.argmin(picked)), MIDDLE: middle}
        plans = list(dict.fromkeys([best, *chosen.values()]))
        bounds = intervals(evaluators[1], [without(every[size][at], model.depth) for at in plans])
        rows = []
        for rule, at in chosen.items():
            low, high = bounds[plans.index(at)]
            rows.append(
                {
                    "rule": rule,
                    "removed": names[at],
                    "nll": float(others[at]),
                    "regret": float(others[at] - others[best]),
                }
                | {"low": low, "high": high, "rank": int(ranks[at])}
            )
        found["sizes"][str(size)] = {
            **{"plans": len(names), "best": names[best], "nll": float(others[best]), "rules": rows},
            "correlation": float(np.corrcoef(np.argsort(np.argsort(picked)), ranks)[0, 1]),
        }
    if options.patch is not None:
        plain = {
            size: {spelled(list(gone)): table.rows[spelled(list(gone))][1] for gone in every[size]} for size in every
        }
        path = options.out / f"cut-regret-{name.lower()}-patched.csv"
        by_size = patched(
            model, evaluators[1], plain, Losses(path, patch_facts(facts, options), ("others",)), options, start
        )
        if by_size is None:
            return None
        for size, own in by_size.items():
            found["sizes"][str(size)]["patched"] = own
    return found


def patch_facts(facts: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    return {**facts, "patched on": options.patch.name, "patch_tokens": options.patch_tokens}


def patched(
    model: ls.Model,
    evaluator: Evaluator,
    plain: dict[int, dict[str, float]],
    table: Losses,
    options: argparse.Namespace,
    start: float,
) -> dict[int, dict[str, Any]] | None:
    """The loss of all pairs and the best of larger plans after a patch, by size; None where the time was over.

    A patch that is no better than the plain cut on its own held-out texts is not applied, as `heal` does it.
    """
    tried = {
        size: sorted(own, key=own.__getitem__)[: len(own) if size == PATCHED_WHOLE else PATCHED_BEST]
        for size, own in plain.items()
    }
    missing = [name for names in tried.values() for name in names if name not in table.rows]
    read = first_tokens(articles(options.patch), model.tokenizer, options.patch_tokens)
    texts = deal(model, of_articles(read), max_length=options.window) if missing else None
    for k in range(0, len(missing), PATCHED_AT_ONCE):
        if k and options.seconds and time.perf_counter() - start > options.seconds:
            print(f"{len(missing) - k} patches are left; run it again to go on.", file=sys.stderr)
            return None
        part = missing[k : k + PATCHED_AT_ONCE]
        patches = Patches(model, [without(blocks_of(name), model.depth) for name in part], texts).solved()
        variants = [Variant(patch.plan, patch.folds) for patch in patches]
        table.add(part, patch_losses(answers(evaluator, model, variants))[1:])
    found = {}
    for size, names in tried.items():
        before = np.asarray([plain[size][name] for name in names])
        after = np.asarray([table.rows[name][0] for name in names])
        best, ranks = int(np.argmin(after)), np.argsort(np.argsort(before))
        found[size] = {
            **{"plans": len(names), "best": names[best], "nll": float(after[best]), "rank": int(ranks[best]) + 1},
            **{"plain_best": names[0], "plain_best_nll": float(after[0]), "applied": int((after != before).sum())},
            "correlation": float(np.corrcoef(ranks, np.argsort(np.argsort(after)))[0, 1]),
        }
    return found


def without(gone: Sequence[int], depth: int) -> LayerPlan:
    return LayerPlan([block for block in range(1, depth + 1) if block not in gone])


def proposed(evaluator: Evaluator, sizes: Sequence[int]) -> dict[str, dict[int, str]]:
    """For every rule but `random`, the blocks that its best plan of each size leaves out, by the texts that choose."""
    depth = evaluator.model.depth
    search = Search(evaluator, np.arange(len(evaluator.examples)), tuple(sizes), max_evaluations=ENOUGH)
    found: dict[str, dict[int, str]] = {}
    for rule in chosen_rules([name for name in RULES if name != "random"], depth):
        plans = rule.plans(search)
        worths = search.worths(plans, rule.name)
        for at in np.argsort(worths, kind="stable"):  # the best of each size comes last
            plan = plans[at]
            found.setdefault(rule.name, {})[depth - len(plan.keep)] = spelled(list(plan.removed(depth)))
    return found


def intervals(evaluator: Evaluator, plans: Sequence[LayerPlan]) -> list[tuple[float, float]]:
    """95% intervals, over texts, of each plan's loss above that of the first."""
    answers = sweep(evaluator, plans, "intervals", note=False).astype(float)
    units, overlap = evaluator.units(), evaluator.rows_overlap
    bounds = []
    for own in answers:
        sums = np.column_stack([own[:, LOSS] - answers[0][:, LOSS], own[:, COUNT]])
        bounds.append(bootstrap_of_sums(sums, units, lambda total: total[0] / total[1], overlap=overlap))
    return bounds


def questions(source: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Perplexity and the synthetic tasks of the whole model, of some of its cuts, and of what is put beside them."""
    model, rows = ls.load(source, dtype=options.dtype), []
    task = of_articles(first_tokens(articles(options.text)[: options.texts], model.tokenizer, options.tokens))
    subjects: list[tuple[str, Any]] = [("whole", model)]
    subjects += [(f"without {gone}", gone) for gone in options.cuts]
    subjects += [tuple(asked.split("=", 1)) for asked in options.beside]
    for name, what in subjects:
        subject = ls.cut(model, without(blocks_of(what), model.depth)) if name.startswith("without ") else what
        asked = {"prompts": options.questions, "new_tokens": 4}
        score = ls.evaluate(subject, task, max_length=options.window, generate=asked, all_rows=True)
        numbers = [number for number in score.more if number.rows_are == "questions"]
        rows.append(
            {"name": name, "perplexity": score.metrics["perplexity"], "n": options.questions, "tokens": options.tokens}
            | {
                number.metric: None if math.isnan(number.value) else [number.value, number.low, number.high]
                for number in numbers
            }
        )
        print(f"{name}: {rows[-1]}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="NAME=MODEL")
    parser.add_argument("--text", type=Path, required=True, help="texts with an empty line between them, perhaps .xz")
    parser.add_argument("--sizes", type=int, nargs="*", default=list(SIZES), help="how many blocks go; none: no plans")
    parser.add_argument(
        "--texts", type=int, default=40, help="how many of its texts plans are scored on, the first ones"
    )
    parser.add_argument("--choosing-texts", type=int, default=10, help="on how many after those the rules choose")
    parser.add_argument("--tokens", type=int, default=32_768, help="tokens that are scored on")
    parser.add_argument("--choosing-tokens", type=int, default=8_192, help="tokens that the rules choose on")
    parser.add_argument("--window", type=int, default=512, help="tokens of a window")
    parser.add_argument("--batch-tokens", type=int, help="tokens of a batch (16,384 suit a large GPU)")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--seconds", type=float, help="end after so long, and go on when run again")
    parser.add_argument("--patch", type=Path, help="texts that plans are patched on; others than those of --text")
    parser.add_argument("--patch-tokens", type=int, default=40_960, help="how much of them is read")
    parser.add_argument("--questions", type=int, help="ask so many questions of each synthetic task")
    parser.add_argument("--cuts", nargs="*", default=[], help="cuts that answer them, such as 14-16 13-19,27")
    parser.add_argument("--beside", action="append", default=[], help="NAME=CHECKPOINT that answers them too")
    parser.add_argument("--out", type=Path, default=HERE, help="the folder to write into (default: beside this script)")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    name, _, source = options.model.partition("=")
    kept = options.out / REGRET

    def keep(more: dict[str, Any]) -> None:
        found = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
        write_json(kept, {**found, name: {**found.get(name, {}), **more}})

    if options.sizes:
        found = measured(name, source, options)
        if found is None:
            return
        keep({"regret": found})
    if options.questions:
        keep({"questions": questions(source, options)})


if __name__ == "__main__":
    main()
