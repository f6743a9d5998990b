"""The page of language models from the numbers that language_models.py has measured: tables, sentences and figures."""

from __future__ import annotations

import json
import math
import statistics
import textwrap
from pathlib import Path
from typing import Any

from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.drawing.render import draw
from layerscope.store import write_text

HERE = Path(__file__).resolve().parent
RESULTS, PAGE = "language-models.json", "language-models.md"
STRETCHES, HEALED, REGRET = "language-models-stretches.json", "healing.json", "cut-regret.json"
RULES = ("angular", "influence", "deepest", "last", "greedy", "swap", "beam", "spans", "random")
WORDS = {
    "angular": "the span of least angular distance (Gromov et al. 2024)",
    "influence": "the blocks of least influence (ShortGPT)",
    "deepest": "the deepest blocks but the last",
    "last": "the last blocks",
    "greedy": "one block after another, by loss (SLEB)",
    "swap": "the same, then exchanges of one block for another, by loss",
    "beam": "one block after another from several plans at once, by loss",
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
SEEN_OF = "SmolLM2-135M"  # the name under which that model must be given to be compared


def page(found: dict[str, Any], folder: Path = HERE) -> str:
    """The page, from the numbers of each model and what else is in the folder; sections stand one after another."""
    healed, alike, far = (read(folder / name) for name in (HEALED, STRETCHES, REGRET))
    parts = [introduction(found)]
    for name, one in found.items():
        parts += [heading(name, one), rule_table(one), *findings(one)]
        if name == SEEN_OF:
            parts.append(comparison(one, alike))
            parts += elsewhere(alike)
        parts += healing(healed.get(name, {}))
    parts += regrets(far)
    return "\n\n".join(parts) + "\n"


def read(path: Path) -> dict[str, Any]:
    """Numbers that another command has left; none where it was not run."""
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}


def introduction(found: dict[str, Any]) -> str:
    measured = {row["rule"] for one in found.values() for row in one["rules"]}
    rules = "\n".join(
        f"- `{rule}`: {what}{'' if rule in measured else ' (not measured here yet)'}" for rule, what in WORDS.items()
    )
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
    about = (
        f"A {one['class']} of {one['blocks']} blocks.{made} Scored on {one['tokens']:,} tokens ({one['scored']:,} of "
        f"them predicted) of the first {one['texts']} texts of `{one['file']}`, in windows of {one['window']} {first}; "
        f"rules chose on {one['choosing_windows']} windows of the {one['choosing_texts']} texts after those. The whole "
        f"model has perplexity **{one['whole']:.2f}** ({one['bits_per_byte']:.4f} bits per byte{bare})."
    )
    figure = f"![perplexity of {name} by the number of blocks removed]({picture(name)})"
    return "\n\n".join([f"## {name}", textwrap.fill(about, 118), figure])


def value(row: dict[str, Any]) -> float:
    """A rule's perplexity; of random plans the middle one."""
    return statistics.median_low(row["perplexity"])


def by_place(one: dict[str, Any]) -> dict[tuple[str, int], dict[str, Any]]:
    return {(row["rule"], row["removed"]): row for row in one["rules"]}


def measured_rules(one: dict[str, Any]) -> list[str]:
    """The rules that the numbers of a model have: those that came later were not measured on every model."""
    return [rule for rule in RULES if any(row["rule"] == rule for row in one["rules"])]


def rule_table(one: dict[str, Any]) -> str:
    """Perplexity by rule and number of blocks, with the blocks that went."""
    places = by_place(one)
    rules = measured_rules(one)
    lines = ["| blocks removed | " + " | ".join(rules) + " |", "| --- |" + " --- |" * len(rules)]
    for size in one["sizes"]:
        cells = []
        for rule in rules:
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


def comparison(one: dict[str, Any], alike: dict[str, Any] | None = None) -> str:
    """The same blocks removed, beside what was seen before: as it is, over the whole model's perplexity, and elsewhere.

    `alike` has the numbers of the stretch of text on which the whole model's perplexity is nearest to what was seen.
    """
    other = (alike or {}).get("seen", {})
    titles = ["blocks removed", "seen before", "here", "difference", "of what the cut costs"]
    titles += ["on a text as hard", "difference"] if other else []
    lines = [f"| {' | '.join(titles)} |", "| --- |" + " --- |" * (len(titles) - 1)]
    far, costs, shift = [], [], one["whole"] / SEEN[""]
    for key, before in SEEN.items():
        if key not in one["seen"]:
            continue
        here = one["seen"][key]
        difference, cost = here / before - 1, here / before / shift - 1
        far += [key or "none"] if abs(difference) > NEAR else []
        costs += [abs(cost)] if key else []
        cells = [key or "none", number(before), number(here), f"{difference:+.1%}", f"{cost:+.1%}" if key else ""]
        cells += (
            [number(other[key]), f"{round(other[key] / before - 1, 3) + 0.0:+.1%}"]
            if key in other
            else [""] * (2 * bool(other))
        )
        lines.append(f"| {' | '.join(cells)} |")
    verdict = f"All {len(lines) - 2} are within {NEAR:.0%}."
    if far:
        near = sum(cost <= NEAR for cost in costs)
        verdict = (
            f"Here {len(lines) - 2 - len(far)} of {len(lines) - 2} are within {NEAR:.0%}, because these are other "
            "texts: which articles were read then is not recorded, and on these the whole model, with nothing cut, "
            f"already has {shift:.3f} times the perplexity. What a cut costs, its perplexity over the whole model's, "
            f"depends less on the text: {near} of {len(costs)} are within {NEAR:.0%}, and the middle one is "
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
    apart = {key: abs(seen[key] / before - 1) for key, before in SEEN.items() if key and key in seen}
    far = [key for key, share in apart.items() if share > NEAR]
    within = min(whole) <= SEEN[""] <= max(whole)
    said = (
        f"How hard the text is makes the difference: on {len(whole)} stretches of {numbers['tokens']:,} tokens, which "
        f"begin evenly spaced over `{numbers['file']}`, the whole model has perplexity {min(whole):.1f} to "
        f"{max(whole):.1f} ({middle:.1f} in the middle), and what was seen then, {SEEN['']:.2f}, lies "
        f"{'among' if within else 'outside of'} these."
    )
    if apart:
        rest = f" The others are without {'; '.join(far)}." if far else ""
        said += (
            f" On the stretch that comes nearest to it ({seen['']:.2f}; the last columns) {len(apart) - len(far)} of "
            f"the {len(apart)} cuts are within {NEAR:.0%} of what was seen, and the middle one is "
            f"{statistics.median(apart.values()):.1%} off.{rest}"
        )
    return [textwrap.fill(said, 118)]


def healing(model: dict[str, Any]) -> list[str]:
    """What training after the cut gives back, by blocks and method, from the numbers of docs/results/healing.py."""
    cases = {tuple(case.split(", ", 1)): row for case, row in model.get("cases", {}).items()}
    if not cases:
        return []
    methods = list(dict.fromkeys(method for _, method in cases))
    gaps = " What is empty was not run." if len(cases) < len(methods) * len({count for count, _ in cases}) else ""
    lines = [f"| blocks removed | cut | {' | '.join(methods)} |", "| --- |" + " --- |" * (len(methods) + 1)]
    for count in dict.fromkeys(count for count, _ in cases):
        own = {method: cases[count, method] for method in methods if (count, method) in cases}
        some = next(iter(own.values()))
        cells = [f"{own[method]['healed']:.2f}" if method in own else "" for method in methods]
        lines.append(f"| {count} ({some['blocks']}) | {some['cut']:.1f} | {' | '.join(cells)} |")
    said = (
        f"Before cutting the perplexity is {model['uncut']:.2f}, on another text than above. {model['about']} The "
        f"commands are in [Healing language models](healing.md).{gaps}"
    )
    return ["\n".join(["### Healed", "", textwrap.fill(said, 118), "", *lines])]


def regrets(models: dict[str, Any]) -> list[str]:
    """How far rules are from the best of all plans, and what cut models answer, from the numbers of cut_regret.py."""
    if not models:
        return []
    missing = (
        "" if "regret" in models.get(SEEN_OF, {}) else f" It was not yet measured on {SEEN_OF}, for want of a GPU."
    )
    said = (
        "`python docs/results/cut_regret.py` evaluates every plan that leaves out two or three blocks. A rule chooses "
        "on some texts; its regret is the loss of its plan above that of the best of all plans, on texts that it did "
        "not choose on, in nats per token with a 95% interval over texts. Part of it no search can avoid: the plan "
        f"that is best on the texts that choose need not be the best on others. Here no search is limited.{missing}"
    )
    parts = ["## How far from the best choice", textwrap.fill(said, 118)]
    for name, one in models.items():
        if "regret" in one:
            parts += regret_tables(name, one["regret"])
        if "questions" in one:
            parts += question_table(name, one["questions"])
    return parts


def regret_tables(name: str, one: dict[str, Any]) -> list[str]:
    said = (
        f"{name}, a {one['class']} of {one['blocks']} blocks: rules chose on {one['choosing_tokens']:,} tokens, and "
        f"all plans were scored on {one['tokens']:,} others of `{one['file']}`, in windows of {one['window']} "
        f"({one['dtype']}). The whole model has perplexity {math.exp(one['whole']):.1f} there."
    )
    parts = [f"### {name}: regret", textwrap.fill(said, 118)]
    for size, found in one["sizes"].items():
        lines = ["| rule | leaves out | perplexity | regret | 95% interval | rank |", "| --- |" + " --- |" * 5]
        for row in sorted(found["rules"], key=lambda row: row["regret"]):
            cells = [row["rule"], row["removed"], number(math.exp(min(row["nll"], 700.0))), f"{row['regret']:.3f}"]
            cells += [f"{row['low']:.3f} to {row['high']:.3f}" if math.isfinite(row["low"]) else "none"]
            lines.append(f"| {' | '.join([*cells, str(row['rank'])])} |")
        best = (
            f"{size} of {one['blocks']} blocks, {found['plans']:,} plans: the best of all leaves out {found['best']} "
            f"(perplexity {number(math.exp(found['nll']))}). The order of all plans on the texts that choose has rank "
            f"correlation {found['correlation']:.3f} with that on the others."
        )
        parts += [textwrap.fill(best, 118), "\n".join(lines)]
        if own := found.get("patched"):
            patched = (
                f"After a patch (`--patch`; {own['plans']:,} of these plans, {own['applied']:,} of which a patch made "
                f"better on its own held-out texts) the best leaves out {own['best']} (perplexity "
                f"{number(math.exp(own['nll']))}), which was number {own['rank']:,} before; the one that was best, "
                f"{own['plain_best']}, comes to {number(math.exp(own['plain_best_nll']))}. The orders before and after "
                f"have rank correlation {own['correlation']:.3f}."
            )
            parts.append(textwrap.fill(patched, 118))
    return parts


def question_table(name: str, rows: list[dict[str, Any]]) -> list[str]:
    tasks = [key for key in rows[0] if key not in ("name", "perplexity", "n", "tokens")]
    lines = [f"| {name} | perplexity | {' | '.join(tasks)} |", "| --- |" + " --- |" * (len(tasks) + 1)]
    for row in rows:
        shares = [
            "undefined" if row[task] is None else "{:.0%} ({:.0%} to {:.0%})".format(*row[task]) for task in tasks
        ]
        lines.append(f"| {row['name']} | {number(row['perplexity'])} | {' | '.join(shares)} |")
    said = (
        f"The share of {rows[0]['n']} generated questions of each kind that are answered rightly (`evaluate "
        f"--generate`), with 95% intervals, beside the perplexity of {rows[0]['tokens']:,} tokens:"
    )
    return [f"### {name}: what cuts break", textwrap.fill(said, 118), "\n".join(lines)]


def picture(name: str) -> str:
    return f"language-models-{name.lower()}.png"


def figure(name: str, one: dict[str, Any]) -> CurveFigure:
    """Every rule's perplexity by the number of blocks removed."""
    places = by_place(one)
    series = []
    for rule in measured_rules(one):
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
        log=True,
        n=one["scored"],
    )


def write_page(found: dict[str, Any], out: Path) -> None:
    """The page and its figures."""
    for name, one in found.items():
        draw(figure(name, one), out / picture(name))
    write_text(out / PAGE, page(found, out))
