"""The pictures of advice: what every candidate costs and scores, and how the rules compare."""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.cutting.candidates import front
from layerscope.data import metrics
from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.drawing.figures.scatter import Point, ScatterFigure
from layerscope.drawing.words import caveat, listed, numbers

if TYPE_CHECKING:
    import pandas

    from layerscope.cutting.advice_results import Advice
    from layerscope.drawing.figure import Figure


def figures_of(advice: Advice) -> list[Figure]:
    """Score against cost of every candidate, the rules beside one another, and the tables of both."""
    frame = advice.frame.drop(columns="plan").sort_values("macs")  # the column blocks says the same
    table = numbers("Every candidate", "What each keeps, scores and costs.", frame)
    rules = advice.rules
    if not len(rules):
        return [candidates(advice), table]
    beside = numbers(
        "Each rule's best plan",
        "The plan of each size that scored best on the rows that choose, its score on the others, and that of random "
        "plans.",
        rules,
    )
    return [candidates(advice), by_size(advice, rules), beside, table]


def candidates(advice: Advice) -> ScatterFigure:
    """Score against multiply-adds; each point says which rules found it."""
    table, chosen = advice.frame, advice.row.name
    metric, most = str(table["metric"].iloc[0]), float(table["macs"].max())
    points = []
    for (index, row), ahead in zip(table.iterrows(), front(table, "score"), strict=True):
        series = ["front"] if ahead else ["other candidates"] if index != chosen else []
        series += ["chosen"] if index == chosen else []
        found_by = f" ({row['rule']})" if row.get("rule") else ""
        name = f"blocks {row['blocks']}{found_by}" if row["removed"] else "the whole model"
        place = (float(row["macs"]) / most, float(row["score"]))
        points += [Point(*place, name, each, float(row["low"]), float(row["high"])) for each in series]
    n, scored = len(advice.exam.examples), len(advice.parts.scoring)
    by = f", found by the rules {listed(advice.rule_names)}" if advice.rule_names else ""
    better = "up" if metrics.higher_is_better(metric) else "down"
    return ScatterFigure(
        title="What each smaller model costs and scores",
        shows=f"{metric} against multiply-adds for every candidate{by}.",
        reading=f"Left is cheaper, {better} is better. Scores are on the rows that did not choose, and the line joins "
        f"the candidates that no other beats there; {advice.how}.",
        caveat=caveat("The interval of a score is a bootstrap over the texts that did not choose.", scored),
        points=tuple(sorted(points, key=lambda p: p.series == "chosen")),
        x_name="multiply-adds, share of the whole model",
        y_name=f"{metric} on rows that did not choose",
        joined=("front",),
        stressed=("chosen",),
        references=(("the whole model", float(table["score"].iloc[0])),),
        n=n,
    )


def by_size(advice: Advice, rules: pandas.DataFrame) -> CurveFigure:
    """The score of each rule's best plan by how many blocks it leaves out."""
    table = advice.frame
    metric, n = str(table["metric"].iloc[0]), len(advice.parts.scoring)
    better = "Up" if metrics.higher_is_better(metric) else "Down"
    floor = " What lies on the worse side of random lost to chance." if (rules["rule"] == "random").any() else ""
    return CurveFigure(
        title="Every rule by the number of blocks that go",
        shows=f"{metric} of each rule's best plan of each size; of random plans the middle one.",
        reading=f"{better} is better.{floor}",
        caveat=caveat("Plans are picked on some rows and scored on others.", n),
        series=tuple(
            Series(str(rule), tuple(map(float, part["removed"])), tuple(map(float, part["score"])))
            for rule, part in rules.groupby("rule", sort=False)
        ),
        x_name="blocks left out",
        y_name=f"{metric} on rows that did not choose",
        log=metric == "perplexity" and _spread(rules["score"]),
        references=(("the whole model", float(table["score"].iloc[0])),),
        n=n,
    )


def _spread(scores: pandas.Series) -> bool:
    """Whether scores lie so far apart that an axis of powers of ten shows them better."""
    known = scores[(scores > 0) & (scores < float("inf"))]
    return bool(len(known) and known.max() > 10 * known.min())
