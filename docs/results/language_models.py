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
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from language_models_page import HERE, RESULTS, RULES, SEEN, SEEN_OF, STRETCHES, picture, write_page

import layerscope as ls
from layerscope.store import write_json

SIZES = (1, 2, 3, 4, 6, 8, 10)  # blocks that are left out
ASKED = ("window", "tokens", "texts", "choosing_texts", "choosing_windows")
BARE = "without a first token"  # the whole model, of one that is read with it


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
