"""What healing brings back of cut language models, by blocks that went and by method: writes healing.md beside this.

    python docs/results/healing.py --model SmolLM2-135M=path/to/folder --text wiki-train.txt --test wiki-test.txt

Every figure is of a command: `layerscope heal` on one text and `layerscope evaluate` on another. The numbers are kept
in healing.json, from which `--from-json` makes the page again; cases that are not asked for stay there as they were.
Cases can run beside one another, each with its own `--out`; `--merge` takes what they have found.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import shlex
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from layerscope.cli import app
from layerscope.cli.console import prepare
from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.drawing.render import draw
from layerscope.store import write_json, write_text

HERE = Path(__file__).resolve().parent
RESULTS, PAGE = "healing.json", "healing.md"
# Blocks that go one after another when the loss chooses (SLEB's greedy search), and how the rest is healed.
BLOCKS = {2: "15,18", 4: "15,17-19", 8: "13-19,27", 10: "5-6,13-19,27"}
METHODS = {
    "LoRA": "",
    "LoRA, distilled": "--distill",
    "all parameters": "--method finetune",
    "all parameters, distilled": "--method finetune --distill",
    "head and last three blocks": "--method finetune --strategy (L-2,L,L)",
}
CASES = {f"{count}, {method}": (BLOCKS[count], more) for count in BLOCKS for method, more in METHODS.items()}
ASKED = ("--kind", "text", "--no-bos", "--max-length", "512", "--format", "json")
EVERY = ("--all-rows",)  # a line that two texts share must not part the windows otherwise


def command(*words: str) -> Any:
    """What a command of layerscope prints as JSON, and how long it took."""
    started = time.perf_counter()
    print(f"layerscope {shlex.join(words)}", file=sys.stderr, flush=True)
    said = io.StringIO()
    with contextlib.redirect_stdout(said):  # in this process: nothing is imported twice
        app([*words], standalone_mode=False)
    seconds = time.perf_counter() - started
    print(f"took {seconds:.1f} s", file=sys.stderr, flush=True)
    return json.loads(said.getvalue())["table"][0] if said.getvalue().startswith("{") else None, seconds


def perplexity(model: str, test: str) -> float:
    return float(command("evaluate", model, "--task", test, *ASKED, *EVERY)[0]["score"])


def healed(model: str, case: str, options: argparse.Namespace) -> dict[str, Any]:
    """One case: cut, healed and evaluated by commands."""
    without, more = CASES[case]
    with tempfile.TemporaryDirectory() as folder:
        smaller, target = f"{folder}/cut", f"{folder}/healed"
        words = ["heal", model, "--without", without, "--task", options.text, *more.split()]
        words += ["--steps", str(options.steps), "--batch", str(options.batch)]
        row, seconds = command(*words, *ASKED, "-o", target)
        skipped = ["skip", model, "--blocks", without, "--save", smaller]
        command(*skipped)
        scores = {"cut": perplexity(smaller, options.test), "healed": perplexity(target, options.test)}
        shutil.rmtree(target)
    shown = shlex.join(["layerscope", "heal", "MODEL", *words[2:], *ASKED[:5], "-o", "healed"])
    for path in (options.text, options.test):
        shown = shown.replace(path, Path(path).name)
    about = {name: row[name] for name in ("trainable", "tokens", "steps", "learning_rate")}
    times = {"seconds of training": row["seconds"], "seconds of the command": seconds}
    return {"blocks": without, "command": shown, **scores, **about, **times}


def merge(found: dict[str, Any], other: dict[str, Any]) -> None:
    """Take the cases of another run; they must be of the same texts, as the uncut model's perplexity shows."""
    for name, model in other.items():
        entry = found.setdefault(name, {**model, "cases": {}})
        if abs(entry["uncut"] / model["uncut"] - 1) > 1e-3:
            sys.exit(f"{name} has perplexity {entry['uncut']:.4f} here and {model['uncut']:.4f} there: on other texts.")
        both = {**entry["cases"], **model["cases"]}
        entry["cases"] = {case: both[case] for case in CASES if case in both}


def page(found: dict[str, Any]) -> str:
    """The page that the numbers make."""
    lines = [
        "# Healing language models",
        "",
        "Made by `docs/results/healing.py` from `healing.json`: each model was cut, healed and evaluated by commands",
        "of layerscope. Perplexity is on text that neither chose blocks nor healed, in windows of 512 tokens. Undone",
        "is the share of the loss that the cut added and healing took away again. It can be more than 100%: healing is",
        "on other articles of the same encyclopedia, so that the model learns this kind of text besides.",
        "",
    ]
    for name, model in found.items():
        lines += [f"## {name}", "", f"The uncut model has perplexity {model['uncut']:.2f}. {model['about']}", ""]
        lines += [f"![perplexity of {name} before and after healing]({picture(name)})", ""]
        lines += [*_table(model), "", *_best(model), "The commands:", "", "```text"]
        lines += [row["command"] for row in model["cases"].values()]
        lines += ["```", ""]
        if "speed" in model:
            lines += _speed(model["speed"])
    return "\n".join(lines).rstrip() + "\n"


def _table(model: dict[str, Any]) -> list[str]:
    """A row for every case."""
    lines = [
        "| blocks gone | healed by | cut | healed | undone | trained parameters |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for case, row in model["cases"].items():
        count, method = case.split(", ", 1)
        added = math.log(row["cut"] / model["uncut"])
        undone = math.log(row["cut"] / row["healed"]) / added if added > 0 else math.nan
        cells = (f"{count} ({row['blocks']})", method, f"{row['cut']:.1f}", f"{row['healed']:.2f}", f"{undone:.0%}")
        lines.append(f"| {' | '.join(cells)} | {row['trainable']:,} |")
    return lines


def _best(model: dict[str, Any]) -> list[str]:
    """Which method is best for each number of blocks, where several were tried."""
    said = []
    for count in dict.fromkeys(case.split(", ", 1)[0] for case in model["cases"]):
        own = {c.split(", ", 1)[1]: r["healed"] for c, r in model["cases"].items() if c.split(", ", 1)[0] == count}
        if len(own) > 1:
            ordered = sorted(own, key=own.__getitem__)
            first, last = ordered[0], ordered[-1]
            said.append(
                f"- {count} blocks gone: {first} heals best ({own[first]:.2f}), {last} least ({own[last]:.2f})."
            )
    return [*said, ""] if said else []


def picture(name: str) -> str:
    return f"healing-{name.lower()}.png"


def figure(name: str, model: dict[str, Any]) -> CurveFigure:
    """Perplexity by the number of blocks that went: as cut, and healed by each method."""
    lines: dict[str, list[tuple[float, float]]] = {"cut": []}
    for case, row in model["cases"].items():
        count, method = case.split(", ", 1)
        lines["cut"] += [(float(count), row["cut"])] if (float(count), row["cut"]) not in lines["cut"] else []
        lines.setdefault(method, []).append((float(count), row["healed"]))
    return CurveFigure(
        title=f"{name}: perplexity before and after healing",
        shows="Perplexity without some blocks, as cut and healed by each method.",
        reading="Down is better.",
        caveat="One text, one seed, one choice of blocks.",
        series=tuple(
            Series(line, *(tuple(part) for part in zip(*points, strict=True))) for line, points in lines.items()
        ),
        x_name="blocks removed",
        y_name="perplexity",
        references=(("the uncut model", model["uncut"]),),
    )


def write_page(found: dict[str, Any], out: Path) -> None:
    """The page and its figures."""
    for name, model in found.items():
        draw(figure(name, model), out / picture(name))
    write_text(out / PAGE, page(found))


def _speed(speed: dict[str, Any]) -> list[str]:
    """The benchmark's table."""
    steps, rounds = speed["steps"], speed["rounds"]
    lines = [
        f"Speed on one {speed['device']} with nothing beside it (`python benchmarks/healing.py --steps {steps}",
        f"--rounds {rounds}`). A plain loop of peft and the Trainer took turns with it. The fastest turn counts, and",
        "ratios are of equally many turns. The upper half was trained for four epochs on both sides.",
        "",
        "| training | turns | s | tokens per second |",
        "| --- | --- | --- | --- |",
    ]
    for name, seconds in speed["seconds"].items():
        turns = len(speed["turns"][name])
        lines.append(f"| {name} | {turns} | {seconds:.1f} | {speed['tokens per second'][name]:,.0f} |")
    lines += ["", "| ratio | value | goal |", "| --- | --- | --- |"]
    for name, value in speed["ratios"].items():
        lines.append(
            f"| {name} | {value:.2f} | {speed['goals'][name]:g} {'or less' if 'time' in name else 'or more'} |"
        )
    return [*lines, ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="NAME=FOLDER")
    parser.add_argument("--text", help="a file of running text to heal on")
    parser.add_argument("--test", help="another, to evaluate on")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--cases", nargs="*", default=list(CASES), choices=list(CASES))
    parser.add_argument("--speed", type=Path, help="what benchmarks/healing.py --format json printed")
    parser.add_argument("--merge", type=Path, nargs="*", default=[], help="healing.json files of other runs")
    parser.add_argument("--from-json", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE)
    options = parser.parse_args()
    prepare(verbose=True)
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / RESULTS
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}
    for other in options.merge:
        merge(found, json.loads(other.read_text(encoding="utf-8")))
        write_json(path, found)
    if not options.from_json and not options.merge:
        name, _, model = options.model.partition("=")
        about = f"Healed by {options.steps} steps of {options.batch} x 512 tokens of Wikipedia."
        entry = found.setdefault(name, {"cases": {}})
        entry |= {"uncut": perplexity(model, options.test), "about": about}
        for case in options.cases:
            entry["cases"][case] = healed(model, case, options)
            entry["cases"] = {each: entry["cases"][each] for each in CASES if each in entry["cases"]}
            print(case, json.dumps(entry["cases"][case]), flush=True)
            write_json(path, found)
    if options.speed is not None:
        next(iter(found.values()))["speed"] = json.loads(options.speed.read_text(encoding="utf-8"))
        write_json(path, found)
    write_page(found, options.out)


if __name__ == "__main__":
    main()
