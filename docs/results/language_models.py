"""Every rule for choosing blocks, on real language models: writes language-models.md beside this.

    python docs/results/language_models.py --model SmolLM2-135M=demo:smollm2 --model Gemma-3-270M=gemma.gguf+bos \\
        --text wiki-00.txt.xz

Rules choose blocks on some articles of the text, and every plan is cut and evaluated on others. `+bos` puts the first
token before every window, which some models cannot do without. The numbers are kept in language-models.json, from which
`--from-json` makes the page and the figures again; models that are not given stay there as they were.
"""

from __future__ import annotations

import argparse
import itertools
import json
import lzma
import math
import statistics
import sys
import textwrap
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import layerscope as ls
from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.drawing.painting import draw, write
from layerscope.store import write_json, write_text

HERE = Path(__file__).resolve().parent
RESULTS, PAGE = "language-models.json", "language-models.md"
STRETCHES, HEALED = "language-models-stretches.json", "healing.json"
SIZES = (1, 2, 3, 4, 6, 8, 10)  # blocks that are left out
RULES = ("angular", "influence", "deepest", "last", "greedy", "spans", "random")
WORDS = {
    "angular": "the span of least angular distance (Gromov et al. 2024)",
    "influence": "the blocks of least influence (ShortGPT)",
    "deepest": "the deepest blocks but the last",
    "last": "the last blocks",
    "greedy": "one block after another, by loss (SLEB)",
    "spans": "the best of all spans, by loss",
    "random": "random blocks: the middle one of several plans",
}
MODELS = ("SmolLM2-135M", "Gemma-3-270M")  # that the page is to have
NEAR = 0.02  # how far a figure may be from the one that was seen before
# Perplexities of SmolLM2-135M-Instruct without these blocks, measured by hand on Wikipedia before layerscope had rules.
SEEN = {
    "": 22.57,
    **{"15": 25.0, "15-16": 29.4, "14-16": 33.1, "13-16": 39.0, "14-19": 43.6, "12-19": 229.0, "10-19": 154.0},
    **{"18": 24.9, "17-18": 27.9, "17-19": 29.9, "16-19": 35.3, "13-20": 67.4},
    **{"30": 258.0, "29-30": 1329.0, "27-30": 30533.0},
    **{"15,18": 27.7, "15,17-18": 31.6, "15,17-19": 33.9, "15-19": 38.2, "13-19": 51.5, "13-19,27": 62.6},
}
ASKED = ("window", "tokens", "texts", "choosing_texts", "choosing_windows")
BARE = "without a first token"  # the whole model, of one that is read with it
SEEN_OF = "SmolLM2-135M"  # the name under which that model must be given to be compared


# The texts.


def articles(path: Path) -> list[str]:
    """The texts of a file: an empty line ends each."""
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rt", encoding="utf-8") as file:
        return [text for text in file.read().split("\n\n") if text.strip()]


def first_tokens(texts: Iterable[str], tokenizer: Any, count: int) -> str:
    """As much of the texts, joined, as has so many tokens."""
    joined = "\n\n".join(texts)
    places = tokenizer(joined, add_special_tokens=False, return_offsets_mapping=True, verbose=False)["offset_mapping"]
    if len(places) < count:
        sys.exit(f"The texts have {len(places):,} tokens and {count:,} are asked for; give more texts.")
    return joined[: places[count - 1][1]]


def running(text: str, bos: bool) -> ls.Task:
    """A text as a task for a language model."""
    import pandas

    return ls.task(pandas.DataFrame({"text": [text]}), text="text", kind="text", bos=bos)


# The measurements.


def measured(source: str, bos: bool, options: argparse.Namespace, notes: Path | None = None) -> dict[str, Any]:
    """The numbers of one model. They are noted as they come, so that a run that was cut off goes on from there."""
    model = ls.load(source)
    facts = {
        "class": type(model.network).__name__,
        "blocks": model.depth,
        "source": model.described().get("converted"),
        "bos": bos,
        **{
            name: getattr(options, name) for name in ("window", "tokens", "texts", "choosing_texts", "choosing_windows")
        },
        "file": options.text.name,
        "asked": sorted(options.sizes),
        "seen": list(options.seen),
        "device": model.device.type,
    }
    run = Notes(notes, facts)
    texts = articles(options.text)
    scored, choosing = texts[: options.texts], texts[options.texts : options.texts + options.choosing_texts]
    windows = (options.window - bos) * 2 * options.choosing_windows  # half of them choose
    text = first_tokens(scored, model.tokenizer, options.tokens)
    task = running(text, bos)
    if not run.plans:
        found = chosen(model, running(first_tokens(choosing, model.tokenizer, windows), bos), options)
        run.chose([[rule, removed, keys] for (rule, removed), keys in found.items()])
    by_size = sorted(run.plans, key=lambda plan: plan[1])  # a run that is cut off has whole sizes
    for key in dict.fromkeys(["", *options.seen, *(key for _, _, keys in by_size for key in keys)]):
        if key not in run.scores:
            run.scored(key, perplexity(model, key, task, options.window))
    if bos and BARE not in run.scores:
        run.scored(BARE, perplexity(model, "", running(text, False), options.window))
    return assembled(run.noted)


def stretches(source: str, options: argparse.Namespace, keep: Callable[[dict[str, Any]], None]) -> None:
    """How much the whole model's perplexity depends on the text, and what was seen on the stretch that is most alike.

    Stretches of as many tokens as are scored begin at texts evenly spaced over the file.
    """
    model, texts = ls.load(source), articles(options.text)
    starts = [len(texts) * k // options.stretches for k in range(options.stretches)]
    numbers: dict[str, Any] = {"file": options.text.name, "texts": len(texts), "tokens": options.tokens, "whole": {}}

    def task(start: int) -> ls.Task:
        lengths = itertools.accumulate(map(len, texts[start:]))
        enough = next((k for k, length in enumerate(lengths, 1) if length > 8 * options.tokens), None)
        part = texts[start:] if enough is None else texts[start : start + enough]
        return running(first_tokens(part, model.tokenizer, options.tokens), False)

    for start in starts:
        numbers["whole"][start] = perplexity(model, "", task(start), options.window)["perplexity"]
        keep(numbers)
    near = min(starts, key=lambda start: abs(numbers["whole"][start] - SEEN[""]))
    numbers |= {"near": near, "seen": {"": numbers["whole"][near]}}
    for key in filter(None, SEEN):
        numbers["seen"][key] = perplexity(model, key, task(near), options.window)["perplexity"]
        keep(numbers)


class Notes:
    """What a run has found so far, in a file. Notes of a run that was asked for something else do not count."""

    def __init__(self, path: Path | None, facts: dict[str, Any]) -> None:
        self._path, self._at = path, time.perf_counter()
        empty = {"facts": facts, "plans": [], "scores": {}, "seconds": {"choosing": 0.0, "scoring": 0.0}}
        self.noted: dict[str, Any] = json.loads(json.dumps(empty))
        if path is not None and path.is_file():
            before = json.loads(path.read_text(encoding="utf-8"))
            self.noted = before if before["facts"] == self.noted["facts"] else self.noted

    @property
    def plans(self) -> list[Any]:
        """Rule, number of blocks, and which blocks go."""
        return list(self.noted["plans"])

    @property
    def scores(self) -> dict[str, dict[str, float]]:
        """By the blocks that went."""
        return dict(self.noted["scores"])

    def chose(self, plans: list[Any]) -> None:
        self.noted["plans"] = plans
        self._keep("choosing")

    def scored(self, key: str, score: dict[str, float]) -> None:
        self.noted["scores"][key] = score
        self._keep("scoring")

    def _keep(self, what: str) -> None:
        now = time.perf_counter()
        self.noted["seconds"][what] += now - self._at
        self._at = now
        if self._path is not None:
            write_json(self._path, self.noted)


def assembled(noted: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a model for the page: all sizes whose plans have been scored."""
    facts, scores = dict(noted["facts"]), noted["scores"]
    plans = [(rule, removed, keys) for rule, removed, keys in noted["plans"]]
    missing = {removed for _, removed, keys in plans if not set(keys) <= set(scores)}
    rows = [
        {"rule": rule, "removed": removed, "blocks": keys, "perplexity": [scores[key]["perplexity"] for key in keys]}
        for rule, removed, keys in plans
        if removed not in missing
    ]
    seen, whole = facts.pop("seen"), scores[""]
    facts.pop("asked")
    without = {"without_bos": scores[BARE]["perplexity"]} if BARE in scores else {}
    return {
        **facts,
        "scored": int(whole["tokens"]),
        "sizes": sorted({row["removed"] for row in rows}),
        "whole": whole["perplexity"],
        "bits_per_byte": whole["bits_per_byte"],
        **without,
        "rules": rows,
        "seen": {key: scores[key]["perplexity"] for key in ["", *seen] if key in scores},
        "seconds": noted["seconds"],
    }


def chosen(model: ls.Model, task: ls.Task, options: argparse.Namespace) -> dict[tuple[str, int], list[str]]:
    """For every rule and number of blocks the blocks that go, chosen on half of the windows; of `random` several."""
    sizes = [size for size in options.sizes if size < model.depth]
    frame = ls.advise(
        model,
        task,
        rules=list(RULES),
        remove=sizes,
        max_span=max(sizes),
        evaluations=model.depth * max(sizes),
        tolerance="10%",
        confidence=0,
        timed=False,
        max_length=options.window,
    ).frame
    found: dict[tuple[str, int], list[str]] = {}
    for rule in RULES:
        own = frame[frame["rule"].str.split(", ").map(lambda names, rule=rule: rule in names)]
        for removed, group in own.groupby("removed"):
            ordered = group.sort_values("chosen_on")  # the lowest perplexity first
            plans = ordered["blocks"] if rule == "random" else ordered["blocks"].iloc[:1]
            found[rule, int(removed)] = [spelled(gone(kept, model.depth)) for kept in plans]
    return found


def perplexity(model: ls.Model, key: str, task: ls.Task, window: int) -> dict[str, float]:
    """Perplexity, bits per byte and tokens of the model without these blocks."""
    network = model
    if key:
        network = ls.cut(model, ls.LayerPlan([b for b in range(1, model.depth + 1) if b not in blocks_of(key)]))
    metrics = ls.evaluate(network, task, max_length=window).metrics
    print(f"without {key or 'none'}: {metrics['perplexity']:,.2f}", flush=True)
    return {name: float(metrics[name]) for name in ("perplexity", "bits_per_byte", "tokens")}


def blocks_of(key: str) -> list[int]:
    """The blocks that a text such as `13-19, 27` names."""
    parts = [part.strip().split("-") for part in key.split(",") if part.strip()]
    return [block for part in parts for block in range(int(part[0]), int(part[-1]) + 1)]


def gone(kept: str, depth: int) -> list[int]:
    stay = blocks_of(kept)
    return [block for block in range(1, depth + 1) if block not in stay]


def spelled(blocks: list[int]) -> str:
    """Blocks as a text: `13-19,27`."""
    spans: list[list[int]] = []
    for block in blocks:
        if spans and block == spans[-1][-1] + 1:
            spans[-1].append(block)
        else:
            spans.append([block])
    return ",".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans)


# The page, from the numbers.


def page(found: dict[str, Any], folder: Path = HERE) -> str:
    """The page, from the numbers of each model and what else is in the folder; sections stand one after another."""
    healed, alike = (read(folder / name) for name in (HEALED, STRETCHES))
    parts = [introduction(found)]
    for name, one in found.items():
        parts += [heading(name, one), rule_table(one), *findings(one)]
        if name == SEEN_OF:
            parts.append(comparison(one))
            parts += elsewhere(alike)
        parts += healing(healed.get(name, {}))
    return "\n\n".join(parts) + "\n"


def read(path: Path) -> dict[str, Any]:
    """Numbers that another command has left; none where it was not run."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def introduction(found: dict[str, Any]) -> str:
    rules = "\n".join(f"- `{rule}`: {what}" for rule, what in WORDS.items())
    others = [name for name in MODELS if name not in found]
    missing = f" Not measured yet: {', '.join(others)}." if others else ""
    return f"""# Which rule finds the blocks that a language model can lose?

Written by `python docs/results/language_models.py`. Each rule of `ls.advise` says which blocks go, by how many; it
looks at texts that the reported perplexity is not measured on. Every plan is then cut (`ls.cut`) and evaluated whole
(`ls.evaluate`), and nothing is trained.{missing}

{rules}"""


def heading(name: str, one: dict[str, Any]) -> str:
    """What was measured on what, and the figure."""
    file = one["source"]
    made = f" It was made float32 from `{file['file']}` ({file['quantisation']})." if file else ""
    first = "with the first token (BOS) before each" if one["bos"] else "without a first token"
    bare = f"; without the first token it is {one['without_bos']:.1f}" if "without_bos" in one else ""
    seconds = one["seconds"]
    about = (
        f"A {one['class']} of {one['blocks']} blocks.{made} Scored on {one['tokens']:,} tokens ({one['scored']:,} of "
        f"them predicted) of the first {one['texts']} texts of `{one['file']}`, in windows of {one['window']} {first}; "
        f"rules chose on {one['choosing_windows']} windows of the {one['choosing_texts']} texts after those. The whole "
        f"model has perplexity **{one['whole']:.2f}** ({one['bits_per_byte']:.4f} bits per byte{bare}). Choosing took "
        f"{seconds['choosing']:.0f} s and scoring {seconds['scoring']:.0f} s on one {one['device']} device."
    )
    figure = f"![perplexity of {name} by the number of blocks removed]({picture(name)})"
    return "\n\n".join([f"## {name}", textwrap.fill(about, 118), figure])


def value(row: dict[str, Any]) -> float:
    """A rule's perplexity; of random plans the middle one."""
    return statistics.median_low(row["perplexity"])


def by_place(one: dict[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    return {(row["rule"], row["removed"]): row for row in one["rules"]}


def rule_table(one: dict[str, Any]) -> str:
    """Perplexity by rule and number of blocks, with the blocks that went."""
    places = by_place(one)
    lines = ["| blocks removed | " + " | ".join(RULES) + " |", "| --- |" + " --- |" * len(RULES)]
    for size in one["sizes"]:
        cells = []
        for rule in RULES:
            row = places.get((rule, size))
            which = "" if row is None or rule == "random" else f" ({row['blocks'][0]})"
            cells.append("" if row is None else f"{number(value(row))}{which}")
        lines.append(f"| {size} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def number(perplexity: float) -> str:
    if not math.isfinite(perplexity) or perplexity >= 1e6:
        return f"{perplexity:.1e}"
    return f"{perplexity:,.1f}" if perplexity < 1000 else f"{perplexity:,.0f}"


def findings(one: dict[str, Any]) -> list[str]:
    """Which rule is best at each size, and which lose to random blocks."""
    places, said = by_place(one), []
    for size in one["sizes"]:
        named = {rule: value(places[rule, size]) for rule in RULES if (rule, size) in places}
        floor = named.pop("random", math.inf)
        best = min(named, key=named.__getitem__)
        lost = [rule for rule, found in named.items() if found > floor]
        worse = f"; worse than random ({number(floor)}): {', '.join(lost)}" if lost else "; none is worse than random"
        said.append(f"- {size} removed: {best} is best ({number(named[best])}){worse}.")
    return ["\n".join(said)]


def comparison(one: dict[str, Any]) -> str:
    """The same blocks removed, beside what was seen before: as it is, and over the whole model's perplexity."""
    lines = ["| blocks removed | here | seen before | difference | of what the cut costs |", "| --- |" + " --- |" * 4]
    far, costs, shift = [], [], one["whole"] / SEEN[""]
    for key, before in SEEN.items():
        if key not in one["seen"]:
            continue
        here = one["seen"][key]
        difference, cost = here / before - 1, here / before / shift - 1
        far += [key or "none"] if abs(difference) > NEAR else []
        costs += [abs(cost)] if key else []
        shown = f"{cost:+.1%}" if key else ""
        lines.append(f"| {key or 'none'} | {number(here)} | {number(before)} | {difference:+.1%} | {shown} |")
    verdict = f"All {len(lines) - 2} are within {NEAR:.0%}."
    if far:
        near = sum(cost <= NEAR for cost in costs)
        verdict = (
            f"{len(lines) - 2 - len(far)} of {len(lines) - 2} are within {NEAR:.0%}. Which articles were read then is "
            f"not recorded, and on these the whole model, with nothing cut, already has {shift:.3f} times the "
            "perplexity. What a cut costs, its perplexity over the whole model's, depends less on the text: "
            f"{near} of {len(costs)} are within {NEAR:.0%}, and the middle one is "
            f"{statistics.median(costs) if costs else math.nan:.1%} off."
        )
    said = "The same blocks, measured by hand before there were rules:"
    return "\n".join([said, "", *lines, "", textwrap.fill(verdict, 118)])


def elsewhere(numbers: dict[str, Any]) -> list[str]:
    """How much the whole model's perplexity depends on the text, and the same cuts on the text most alike."""
    if not numbers:
        return []
    whole = list(numbers["whole"].values())
    middle = statistics.median(whole)
    seen = numbers.get("seen", {})
    pairs = [(seen[key], before) for key, before in SEEN.items() if key and key in seen]
    near = sum(abs(here / before - 1) <= NEAR for here, before in pairs)
    within = min(whole) <= SEEN[""] <= max(whole)
    said = (
        f"How much that is depends on the text: on {len(whole)} stretches of {numbers['tokens']:,} tokens, which begin "
        f"evenly spaced over `{numbers['file']}`, the whole model has perplexity {min(whole):.1f} to {max(whole):.1f} "
        f"({middle:.1f} in the middle), and what was seen then, {SEEN['']:.2f}, lies "
        f"{'among' if within else 'outside of'} these."
    )
    if pairs:
        off = statistics.median(abs(here / before - 1) for here, before in pairs)
        said += (
            f" On the stretch that comes nearest to it ({seen['']:.2f}) {near} of the {len(pairs)} cuts "
            f"above are within {NEAR:.0%} of what was seen, and the middle one is {off:.1%} off."
        )
    return [textwrap.fill(said, 118)]


def healing(model: dict[str, Any]) -> list[str]:
    """What training after the cut gives back, by blocks and method, from the numbers of docs/results/healing.py."""
    cases = {tuple(case.split(", ", 1)): row for case, row in model.get("cases", {}).items()}
    if not cases:
        return []
    methods = list(dict.fromkeys(method for _, method in cases))
    lines = [f"| blocks removed | cut | {' | '.join(methods)} |", "| --- |" + " --- |" * (len(methods) + 1)]
    for count in dict.fromkeys(count for count, _ in cases):
        own = {method: cases[count, method] for method in methods if (count, method) in cases}
        some = next(iter(own.values()))
        cells = [f"{own[method]['healed']:.2f}" if method in own else "" for method in methods]
        lines.append(f"| {count} ({some['blocks']}) | {some['cut']:.1f} | {' | '.join(cells)} |")
    said = (
        f"Before cutting the perplexity is {model['uncut']:.2f}, on another text than above. {model['about']} The "
        "commands, times and parameters are in [Healing language models](healing.md)."
    )
    return ["\n".join(["### Healed", "", textwrap.fill(said, 118), "", *lines])]


def picture(name: str) -> str:
    return f"language-models-{name.lower()}.png"


def figure(name: str, one: dict[str, Any]) -> CurveFigure:
    """Every rule's perplexity by the number of blocks removed."""
    places = by_place(one)
    series = []
    for rule in RULES:
        points = [(float(size), value(places[rule, size])) for size in one["sizes"] if (rule, size) in places]
        series.append(Series(rule, tuple(x for x, _ in points), tuple(y for _, y in points)))
    return CurveFigure(
        title=f"{name}: perplexity by blocks removed",
        shows="Perplexity of each rule's plan.",
        reading="Down is better.",
        caveat="One text, one choice of blocks by each rule.",
        series=tuple(series),
        x_name="blocks removed",
        y_name="perplexity",
        references=(("the whole model", one["whole"]),),
        n=one["scored"],
    )


def write_page(found: dict[str, Any], out: Path) -> None:
    """The page and its figures."""
    for name, one in found.items():
        axes = draw(figure(name, one))
        axes.set_yscale("log")
        write(axes.figure, out / picture(name))
    write_text(out / PAGE, page(found, out))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", default=[], help="NAME=MODEL, or NAME=MODEL+bos; several times")
    parser.add_argument("--text", type=Path, help="a file of texts with an empty line between them, perhaps .xz")
    parser.add_argument("--texts", type=int, default=60, help="how many of its texts are scored on, the first ones")
    parser.add_argument("--choosing-texts", type=int, default=20, help="on how many after those the rules choose")
    parser.add_argument("--tokens", type=int, default=131_072, help="tokens that are scored on")
    parser.add_argument("--window", type=int, default=512, help="tokens of a window")
    parser.add_argument("--choosing-windows", type=int, default=16, help="windows that the rules choose on")
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES), help="how many blocks go")
    parser.add_argument(
        "--stretches",
        type=int,
        help="only score the whole model on so many stretches of the text, to see how they differ",
    )
    parser.add_argument("--out", type=Path, default=HERE, help="the folder to write into (default: beside this script)")
    parser.add_argument("--from-json", action="store_true", help="measure nothing; write the page from the numbers")
    options = parser.parse_args()
    if options.model and options.text is None and not options.from_json:
        parser.error("name the file of texts with --text")
    options.out.mkdir(parents=True, exist_ok=True)
    kept = options.out / RESULTS
    found = json.loads(kept.read_text(encoding="utf-8")) if kept.is_file() else {}
    for asked in () if options.from_json else options.model:
        name, _, source = asked.partition("=")
        if options.stretches:
            stretches(source, options, lambda numbers: write_json(options.out / STRETCHES, numbers))
            continue
        options.seen = [key for key in SEEN if key] if name == SEEN_OF else []
        notes = options.out / f"{picture(name).removesuffix('.png')}.partial.json"
        found[name] = measured(source.removesuffix("+bos"), source.endswith("+bos"), options, notes)
        write_json(kept, found)
        notes.unlink()
    if options.stretches:
        return
    if not found:
        parser.error(f"there are no numbers in {kept} yet; give a --model")
    write_page(found, options.out)


if __name__ == "__main__":
    main()
