"""What aligners find between seeds of one model, and of maps that are known. Written to alignment.md beside this.

Run with: python docs/results/alignment.py [--model garden:bert-s0] [--limit 1600] [--repeats 2]. Half an hour on two
cores; what has been fitted is in the store.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import pandas

import layerscope as ls

# Ren et al. 2023, table 3: L2 distance (their mean squared error per entry) after recovering a random INN.
PAPER = {"linear": "1.0882", "cca": "0.3060", "svcca": "0.1396", "pwcca": "0.3060", "inn": "0.0059"}

SEEDS = [f"garden:bert-s{k}" for k in range(5)]
PAIRS, LAYERS, METHODS = 8, [3, 6, 9, 12], ["procrustes", "linear", "cca", "svcca", "inn"]
ATTENDED = [1, 6, 12]
PLAIN = "inn, without a linear start"


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    """A table in Markdown."""
    lines = [head, ["---"] * len(head), *rows]
    return ["| " + " | ".join(line) + " |" for line in lines]


def ratios(frame: pandas.DataFrame) -> pandas.DataFrame:
    """The invertible network's error over the linear map's on test texts: a row per pair, a column per layer."""
    tested = frame[frame["split"] == "test"]
    wide = tested.pivot_table(index=["source", "target", "layer"], columns="method", values="relative")
    return (wide["inn"] / wide["linear"]).unstack("layer")


def seeds(frame: pandas.DataFrame) -> list[str]:
    """The section on real seeds."""
    tested = frame[frame["split"] == "test"]
    by_layer = tested.pivot_table(index="method", columns="layer", values="relative")
    order = [method for method in METHODS if method in by_layer.index]
    n = int(tested["n"].iloc[0])
    pairs = tested[["source", "target"]].drop_duplicates()
    lines = [
        "## Between seeds",
        "",
        f"Five BERTs of the garden that differ in their seed alone (12 layers of width 128): {len(pairs)} ordered",
        f"pairs, mean-pooled states of `pydocs`, 1,600 texts to learn from, {n} others to score on. Relative error",
        r"$\frac{\lVert Y - g(X) \rVert^2}{\lVert Y - \bar{Y} \rVert^2}$, mean over the pairs:",
        "",
        *table(
            ["method", *(f"layer {layer}" for layer in by_layer.columns)],
            [[method, *(f"{value:.4f}" for value in by_layer.loc[method])] for method in order],
        ),
        "",
        "The invertible network's error over the linear map's, pair by pair:",
        "",
        *table(
            ["source", "target", *(f"layer {layer}" for layer in by_layer.columns)],
            [
                [*(name.removeprefix("garden:") for name in pair), *(f"{value:.4f}" for value in row)]
                for pair, row in zip(ratios(frame).index, ratios(frame).to_numpy(), strict=True)
            ],
        ),
        "",
    ]
    return [*lines, *seed_sentences(ratios(frame), by_layer)]


def seed_sentences(ratio: pandas.DataFrame, by_layer: pandas.DataFrame) -> list[str]:
    """What the invertible network gains, and whether the paper's order holds, from the figures."""
    values = ratio.to_numpy().ravel()
    gained, same = (values < 0.9995).sum(), (abs(values - 1) <= 0.0005).sum()
    firsts = [by_layer[layer].idxmin() for layer in by_layer]
    holds = all(first == "inn" for first in firsts)
    margin = (1 - ratio.mean()).max()
    return [
        "- The invertible network starts from the linear map and is stopped on held-out texts. It is better in "
        f"{gained} of {len(values)} cases, the linear map itself in {same}, worse in {len(values) - gained - same}; at "
        f"worst its error is {max(values.max() - 1, 0):.1%} above the linear map's, at best {1 - values.min():.1%} "
        f"below, on average {1 - values.mean():.2%} below.",
        f"- The paper's order (the invertible network first) {'holds' if holds else 'does not hold'} in the mean over "
        f"pairs, by {margin:.1%} of the error at most: what two seeds do not share linearly, a bijection hardly finds."
        + ("" if holds else f" First are {', '.join(dict.fromkeys(firsts))}."),
        f"- The paper's second half of the order (CCA before linear regression) "
        f"{'holds' if (by_layer.loc['cca'] < by_layer.loc['linear']).all() else 'does not hold'}: linear regression, "
        f"solved in closed form with a ridge, has less error than CCA at "
        f"{(by_layer.loc['linear'] < by_layer.loc['cca']).sum()} of {by_layer.shape[1]} layers.",
    ]


def attention(frame: pandas.DataFrame) -> list[str]:
    """The section on attention; the frame has a column `of`."""
    tested = frame[(frame["split"] == "test") & (frame["method"] == "linear")]
    means = tested.pivot_table(index="of", columns="layer", values="relative")
    lines = [
        "## Attention or states",
        "",
        "The same pairs, linear maps between attention weights (a row per pair of tokens, a column per attention head,",
        "400 texts to learn from and 400 to score on) and between states, each relative to its own spread:",
        "",
        *table(
            ["of", *(f"layer {layer}" for layer in means.columns)],
            [
                [str(of), *(f"{value:.2f}" for value in row)]
                for of, row in zip(means.index, means.to_numpy(), strict=True)
            ],
        ),
        "",
    ]
    closer = [str(layer) for layer in means if means.loc["attention", layer] < means.loc["states", layer]]
    others = [str(layer) for layer in means if str(layer) not in closer]
    if closer and others:
        said = f"not uniformly: at layer {' and '.join(closer)} it is, at layer {' and '.join(others)} it is not"
    else:
        said = "yes, at all of these layers" if closer else "no, at none of these layers"
    return [*lines, f"- Is attention more alike than states, relative to its spread? {said[0].upper()}{said[1:]}."]


def written(frame: pandas.DataFrame, n: int, width: int, model: str) -> list[str]:
    """The section on known maps."""
    means = frame.groupby(["truth", "noise", "method"], sort=False)["relative"].agg(["mean", "std"])
    settings = list(dict.fromkeys(zip(frame["truth"], frame["noise"], strict=True)))
    methods = list(dict.fromkeys(frame["method"]))
    head = ["method", *(f"{truth}, noise {noise:g}" for truth, noise in settings), "paper: INN, their error"]
    rows = []
    for method in methods:
        cells = [f"{means['mean'][(*s, method)]:.4f} ± {means['std'][(*s, method)]:.4f}" for s in settings]
        rows.append([method, *cells, PAPER.get(method, "")])
    return [
        "## Which methods find a map that is there?",
        "",
        f"X are the mean-pooled states of the last layer of `{model}` over {n} sentences of `pydocs` (width {width},",
        "standardised), Y = f(X) for a random f, half of the texts to learn from. Relative error on the other half,",
        "mean and standard deviation over repeats. `inn` is a random invertible network of one coupling block on the",
        "features' own halves, as in the paper; `rotated inn` the same in other coordinates. With noise of 0.1 no map",
        "can come below 0.0099. The last column is table 3 of Ren et al. (2023), a mean squared error on other data,",
        "so only the order of its rows compares. (PWCCA gives no map; the paper's figure for it is that of CCA.)",
        "",
        *table(head, rows),
        "",
        *_sentences(means["mean"]),
    ]


def _sentences(mean: pandas.Series) -> list[str]:
    """What agrees with the paper and what does not, from the figures."""
    sentences = []
    networks = ("inn", PLAIN)
    for truth in ("inn", "rotated inn"):
        errors = mean[truth, 0.0].drop(["identity", "mean"], errors="ignore").round(4).sort_index()
        errors = errors.sort_values(kind="stable")
        best, second = errors.index[:2]
        linear = mean[truth, 0.0, "linear"]
        sentences.append(
            f"- Truth `{truth}`: {best} is best ({errors.iloc[0]:.4f}), then {second} ({errors.iloc[1]:.4f}); linear "
            f"regression, solved in closed form with a ridge, reaches {linear:.4f}."
        )
    wins, still = (mean[truth, 0.0].drop(["identity", "mean"]).idxmin() in networks for truth in ("inn", "rotated inn"))
    sentences.append(
        f"- The paper's order (the invertible network first) {'holds' if wins else 'does not hold'} where the truth "
        f"splits the same features as the learner, and {'holds' if still else 'does not hold'} in rotated coordinates, "
        "where the learner is told nothing of the truth's form."
    )
    first, second = mean["inn", 0.0, "inn"], mean["inn", 0.0, PLAIN]
    sentences.append(
        f"- A linear start {'costs' if first > second else 'helps'} the invertible network where the truth is one that "
        f"splits the same features ({first:.4f} with it, {second:.4f} without): it leaves those coordinates. On a "
        f"linear truth it has {mean['linear', 0.0, 'inn']:.4f} with it and {mean['linear', 0.0, PLAIN]:.4f} without."
    )
    order = mean["inn", 0.0]
    sentences.append(
        "- The paper's linear regression (1.09, trained by gradient steps that hardly move) is its worst method; "
        f"solved, it is {'better' if order['linear'] < order['cca'] else 'worse'} than CCA here."
    )
    return sentences


def page(sections: list[list[str]], command: str) -> str:
    """The page of its sections."""
    lines = ["# Maps between seeds, and maps that are known", "", f"Written by `{command}`."]
    for section in sections:
        lines += ["", *section]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="garden:bert-s0")
    parser.add_argument("--limit", type=int, default=1600)
    parser.add_argument("--repeats", type=int, default=2)
    options = parser.parse_args()
    between = ls.alignment_study(SEEDS, "pydocs", layers=LAYERS, methods=METHODS, pairs=PAIRS).frame
    sides = [
        ls.alignment_study(
            SEEDS, "pydocs", layers=ATTENDED, methods=["linear"], pairs=PAIRS, representation=of, train=size, test=size
        ).frame.assign(of=of)
        for of, size in (("attention", 400), ("states", 1600))
    ]
    reps = ls.extract(options.model, "pydocs", split="train", pool="mean", limit=options.limit)
    known = ls.synthetic_study(reps, repeats=options.repeats).frame
    plain = ls.synthetic_study(reps, repeats=options.repeats, methods=["inn"], options={"inn": {"start": "plain"}})
    frame = pandas.concat([known, plain.frame.assign(method=PLAIN)], ignore_index=True)
    command = f"python docs/results/alignment.py --limit {options.limit} --repeats {options.repeats}"
    sections = [
        seeds(between),
        attention(pandas.concat(sides, ignore_index=True)),
        written(frame, len(reps), reps.width, options.model),
    ]
    text = page(sections, command)
    Path(__file__).with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
