"""`ls.measure_trial`: similarity measures put to tests in which the truth is known (ReSi, Klabunde et al. 2025).

Every test is a statistic of one matrix per measure: how alike each model (or layer) is to each other one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import TYPE_CHECKING, Any

import numpy as np

from layerscope.data import TaskSource
from layerscope.data import task as open_task
from layerscope.drawing.captions import numbers
from layerscope.drawing.figures.bars import BarsFigure
from layerscope.errors import InputError, LayerscopeError, choose
from layerscope.evaluation.classification import ClassificationEvaluator
from layerscope.evaluation.evaluate import make_evaluator
from layerscope.extraction.extract import extract
from layerscope.extraction.representations import Representations
from layerscope.models import ModelSource, load
from layerscope.progress import progress
from layerscope.registry import MEASURES
from layerscope.resampling import jackknifed
from layerscope.results import Finding, Result, provenance_of
from layerscope.results.finding import ANSWER, DETAIL, interval, number
from layerscope.similarity.compare import compare
from layerscope.similarity.registry import measure as measure_named

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure
    from layerscope.similarity.registry import Measure

ACCURACY, OUTPUT, GROUPS, LAYERS = "accuracy", "output", "groups", "layers"
TESTS = (ACCURACY, OUTPUT, GROUPS, LAYERS)
# Statistics by test. 1 is the best of all; what a measure that knows nothing gets differs.
STATISTICS = {
    ACCURACY: ("accuracy_spearman",),
    OUTPUT: ("divergence_spearman", "disagreement_spearman"),
    GROUPS: ("auprc", "conformity"),
    LAYERS: ("layer_conformity", "layer_spearman"),
}
_FEWEST = 3  # models, so that there are pairs to tell apart


class MeasureTrial(Result):
    """How well each measure passes a test; `ls.measure_trial` makes one.

    `frame` has one row per measure and statistic: measure, statistic, value, low, high (95 % over models), models,
    pairs, undefined (pairs without a value, which are left out), seconds (per pair), reason. 1 is the best value of
    every statistic.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> steps = np.random.default_rng(0).normal(size=(4, 60, 4)).cumsum(axis=0)
        >>> layers = ls.Representations.from_arrays(list(steps))
        >>> ls.measure_trial([layers], test="layers", measures=["cka", "rsa"]).ranking["measure"].tolist()
        ['cka', 'rsa']
    """

    name = "measure_trial"

    def __init__(self, test: str, frame: pandas.DataFrame, provenance: Mapping[str, Any]) -> None:
        self.test, self._frame, self.provenance = test, frame, provenance

    @property
    def frame(self) -> pandas.DataFrame:
        return self._frame

    @property
    def ranking(self) -> pandas.DataFrame:
        """The measures from the best to the worst by the first statistic; those without a value come last."""
        own = self._frame[self._frame["statistic"] == STATISTICS[self.test][0]]
        return own.sort_values("value", ascending=False, kind="stable").reset_index(drop=True)

    def figures(self) -> list[Figure]:
        ranked = self.ranking
        first = STATISTICS[self.test][0]
        bars = BarsFigure(
            title=f"Measures in the test {self.test}",
            shows=f"{first.replace('_', ' ')} of every measure, with its 95 % interval over models.",
            reading="1 is the best: the measure says just what is known.",
            names=tuple(ranked["measure"]),
            values=tuple(map(float, ranked["value"])),
            low=tuple(map(float, ranked["low"])),
            high=tuple(map(float, ranked["high"])),
            y_name=first.replace("_", " "),
        )
        return [bars, numbers("Every statistic", "The test of every measure, and what it cost.", self._frame)]

    def findings(self) -> list[Finding]:
        """Which measure does best, and how many cannot be told from it."""
        defined = self.ranking.dropna(subset="value")
        if not len(defined):
            return [Finding("No measure has a value in this test.", "", None, ANSWER)]
        best = defined.iloc[0]
        # Intervals of single measures are over the same models: those that overlap are not told apart by them.
        ties = [row for row in defined.to_dict("records")[1:] if not row["high"] < best["low"]]
        evidence = f"{interval(best['low'], best['high'])} over {best['models']} models"
        sure = None if math.isnan(best["low"]) else not ties
        text = f"{best['measure']} does best in the test {self.test}: {best['statistic']} {number(best['value'])}"
        found = [Finding(f"{text}.", evidence, sure, ANSWER)]
        if ties and sure is not None:
            others = f"{len(ties)} of the {len(defined) - 1} other measures"
            text = f"The interval of {best['measure']} meets those of {others}."
            found.append(Finding(text, "", None, DETAIL))
        return found

    def __repr__(self) -> str:
        order = ", ".join(f"{row['measure']} {number(row['value'])}" for row in self.ranking.head(3).to_dict("records"))
        return f"MeasureTrial({self.test}: {order}, ..)"


def measure_trial(
    models: Mapping[str, Sequence[ModelSource]] | Sequence[ModelSource],
    task: TaskSource | None = None,
    *,
    test: str | None = None,
    measures: str | Sequence[str] | None = None,
    split: str | None = None,
    pool: str = "cls",
    layer: int | None = None,
    limit: int | None = None,
    max_length: int = 128,
    ci: float | None = 0.95,
) -> MeasureTrial:
    """Test similarity measures where the truth is known, as ReSi does (Klabunde et al. 2025).

    - `accuracy`: the more two models differ in accuracy, the less alike they are. The Spearman correlation of the two.
    - `output`: the same for what they answer: the Jensen-Shannon divergence of their predictions, averaged over texts,
      and the share of texts on which they disagree.
    - `groups`: two models of one group are more alike than two of different groups. The area under the precision-recall
      curve (AUPRC), and the share of comparisons in which that is so (conformity), averaged over groups. An asymmetric
      measure counts every pair within a group in both directions, where ReSi counts one; pairs of different groups
      count from the group's own model to the other, as in ReSi.
    - `layers`: a layer is more alike to a near layer than to one behind that. The share of comparisons in which that is
      so, and the Spearman correlation with the distance of layers, averaged over models.

    Intervals are over models, by leaving out one at a time.

    Args:
        models: Models, or representations of the same texts; for the test `groups` a mapping from each group's name to
            its models.
        task: The task whose texts the models read. Not for representations.
        test: `accuracy`, `output`, `groups` or `layers`; `groups` where a mapping is given.
        measures: The measures; all that take representations if not given (`layerscope measures` lists them).
        split: The split; `validation` where there is one, else the only one.
        pool: How token states become rows: `cls`, `mean` or `last`.
        layer: Which layer of every model is compared; the last one if not given. The test `layers` compares all.
        limit: Use only the first N examples.
        max_length: The longest text in tokens.
        ci: The level of intervals over models; None leaves them out.

    Returns:
        A `MeasureTrial`, a `Result` with one row per measure and statistic.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> draws = np.random.default_rng(0).normal
        >>> kinds = [draws(size=(60, 4)) for _ in range(2)]
        >>> def alike(rows):
        ...     return [ls.Representations.from_arrays([rows + draws(size=rows.shape) / 9]) for _ in range(3)]
        >>> trial = ls.measure_trial({"a": alike(kinds[0]), "b": alike(kinds[1])}, measures=["cka", "rsa"])
        >>> trial.frame[["measure", "statistic", "value"]].values.tolist()[:2]
        [['cka', 'auprc', 1.0], ['cka', 'conformity', 1.0]]
    """
    grouped = isinstance(models, Mapping)
    if test is None and not grouped:
        raise InputError(
            f"Say which test is meant, test= one of {', '.join(TESTS)}; a mapping of groups is for groups."
        )
    test = choose("test", test or GROUPS, TESTS)
    if grouped != (test == GROUPS):
        kind = "a mapping from the name of each group to its models" if test == GROUPS else "a list of models"
        raise InputError(f"The test {test} takes {kind}; models is {'a mapping' if grouped else 'no mapping'}.")
    groups = (
        {str(name): list(part) for name, part in models.items()} if isinstance(models, Mapping) else {"": list(models)}
    )
    sources = [source for part in groups.values() for source in part]
    _check_sizes(test, groups, sources)
    chosen = _measures(measures)
    stored = all(isinstance(source, Representations) for source in sources)
    if stored != (task is None):
        raise InputError("Models need a task, and representations have their texts already; give one or the other.")
    if stored and test in (ACCURACY, OUTPUT):
        raise InputError(f"The test {test} asks the models themselves, and representations were given; give models.")
    layers = None if test == LAYERS else layer
    reading = {"split": split, "pool": pool, "limit": limit, "max_length": max_length}
    read = (
        _Read.of_representations(sources, layers, test)
        if stored
        else _Read.of_models(sources, task, layers, test, reading)
    )
    tested: dict[str, Statistic] = {}
    if test == ACCURACY:
        tested = {STATISTICS[ACCURACY][0]: _correlated(_differences(read.accuracies))}
    elif test == OUTPUT:
        tested = dict(zip(STATISTICS[OUTPUT], map(_correlated, _outputs(read.logits)), strict=True))
    elif test == GROUPS:
        tested = _grouped(np.repeat(np.arange(len(groups)), [len(part) for part in groups.values()]))
    rows: list[dict[str, Any]] = []
    with progress(f"Test {test}", len(chosen), "measures") as advance:
        for entry in chosen:
            if test == LAYERS:
                rows += _layer_rows(entry, read.reps, ci)
            else:
                rows += _model_rows(entry, read.reps, tested, ci)
            advance(1)
    import pandas

    settings: dict[str, Any] = {"test": test, "layer": layer, "ci": ci, **({} if stored else reading)}
    if test == GROUPS:
        settings["groups"] = {name: len(part) for name, part in groups.items()}
    origin = provenance_of(read.described, read.data, settings)
    return MeasureTrial(test, pandas.DataFrame(rows), origin)


def _check_sizes(test: str, groups: Mapping[str, Sequence[Any]], sources: Sequence[Any]) -> None:
    """Raise InputError where there are too few models for a test to tell anything."""
    if test == GROUPS:
        if len(groups) < 2:
            raise InputError(f"The test groups needs two groups or more; models has {len(groups)}.")
        if small := [name for name, part in groups.items() if len(part) < 2]:
            raise InputError(f"Each group needs two models or more, and {small[0]} has {len(groups[small[0]])}.")
    elif test != LAYERS and len(sources) < _FEWEST:
        raise InputError(f"The test {test} needs {_FEWEST} models or more; there are {len(sources)}.")
    elif not sources:
        raise InputError("models is empty; give at least one.")


def _measures(names: str | Sequence[str] | None) -> list[Measure]:
    """Return the measures of some names, or all that compare representations."""
    if names is None:
        return [entry for name, entry in sorted(MEASURES.items()) if entry.needs != "attention"]
    entries = [measure_named(name) for name in ([names] if isinstance(names, str) else names)]
    if not entries:
        raise InputError("measures is empty; name at least one, or leave it out for all.")
    if attention := [entry.name for entry in entries if entry.needs == "attention"]:
        raise InputError(f"{attention[0]} compares attention; the tests are of measures that compare representations.")
    return entries


@dataclass
class _Read:
    """What is read of the models: rows, and what they answer."""

    reps: list[Representations]
    described: list[dict[str, Any]]
    data: Any
    logits: list[np.ndarray]
    accuracies: list[float]

    @classmethod
    def of_representations(cls, sources: Sequence[Representations], layer: int | None, test: str) -> _Read:
        reps = [part if test == LAYERS else part.select(layers=[_top(part, layer)]) for part in sources]
        described = [dict(part.info["described"]) for part in sources if "described" in part.info]
        return cls(reps, described, sources[0].info.get("data"), [], [])

    @classmethod
    def of_models(
        cls, sources: Sequence[ModelSource], task: TaskSource, layer: int | None, test: str, reading: dict[str, Any]
    ) -> _Read:
        """Read models one after the other, so that one is open at a time where they are given by their names."""
        read = cls([], [], None, [], [])
        opened_task = open_task(task)
        asked = {name: reading[name] for name in ("split", "limit", "max_length")}
        for source in sources:
            model = load(source)
            layers = None if test == LAYERS else [model.depth if layer is None else layer]
            read.reps.append(extract(model, opened_task, layers=layers, final_norm=True, **reading))
            read.described.append(model.described())
            if test in (ACCURACY, OUTPUT):
                evaluator = make_evaluator(model, opened_task, all_rows=True, **asked)
                if not isinstance(evaluator, ClassificationEvaluator) or evaluator.task.regression:
                    raise InputError(
                        f"The test {test} compares predicted classes, and {model.name} gives none on "
                        f"{opened_task.name}; give classifiers."
                    )
                answers, _ = evaluator.answers_together(evaluator.examples)
                read.logits.append(answers)
                read.accuracies.append(float((answers.argmax(axis=1) == evaluator.labels).mean()))
                read.data = evaluator.examples
            else:
                read.data = opened_task.split(reading["split"], limit=reading["limit"])
        return read


def _top(reps: Representations, layer: int | None) -> int:
    return max(reps.layers) if layer is None else layer


Statistic = Callable[[np.ndarray, bool, np.ndarray], float]  # alike (n, n), symmetric, the models that stay


def _model_rows(
    entry: Measure, reps: Sequence[Representations], tested: Mapping[str, Statistic], ci: float | None
) -> Iterator[dict[str, Any]]:
    """Yield the rows of a measure in a test of several models."""
    every = np.arange(len(reps))
    alike, seconds, reason = _matrix(entry, list(reps))
    off = ~np.eye(len(every), dtype=bool)
    pairs = len(every) * (len(every) - 1) // (2 if entry.symmetric else 1)
    undefined = int(np.isnan(alike[off]).sum()) // (2 if entry.symmetric else 1)
    for name, statistic in tested.items():
        value = statistic(alike, entry.symmetric, every)
        without = [] if ci is None else [statistic(alike, entry.symmetric, np.delete(every, k)) for k in every]
        row = _row(entry, name, value, without, ci, reason)
        yield {**row, "models": len(every), "pairs": pairs, "undefined": undefined, "seconds": seconds / pairs}


def _layer_rows(entry: Measure, reps: Sequence[Representations], ci: float | None) -> Iterator[dict[str, Any]]:
    """Yield the rows of a measure in the test of layers: means over models."""
    found, total, pairs, undefined, reason = [], 0.0, 0, 0, ""
    for part in reps:
        alike, seconds, why = _matrix(entry, [part])
        n = len(alike)
        found.append([layer_conformity(alike), layer_correlation(alike)])
        total, reason = total + seconds, reason or why
        pairs += n * (n - 1) // (2 if entry.symmetric else 1)
        undefined += int(np.isnan(alike[~np.eye(n, dtype=bool)]).sum()) // (2 if entry.symmetric else 1)
    numbers = np.asarray(found, dtype=float)
    for k, name in enumerate(STATISTICS[LAYERS]):
        own = numbers[~np.isnan(numbers[:, k]), k]
        value = float(own.mean()) if len(own) else math.nan
        without = (
            [] if ci is None else [float(np.delete(own, j).mean()) for j in range(len(own))] if len(own) > 1 else []
        )
        row = _row(entry, name, value, without, ci, reason)
        yield {**row, "models": len(own), "pairs": pairs, "undefined": undefined, "seconds": total / max(pairs, 1)}


def _row(
    entry: Measure, name: str, value: float, without: Sequence[float], ci: float | None, reason: str
) -> dict[str, Any]:
    low = high = math.nan
    # Where it does not matter which model is left out, the models say nothing of how much the value varies.
    if ci is not None and len(without) > 1 and not np.isnan([value, *without]).any() and np.ptp(without) > 0:
        half = float(jackknifed(np.asarray(without), ci))
        least = 0.0 if name in ("auprc", "conformity", "layer_conformity") else -1.0
        low, high = max(value - half, least), min(value + half, 1.0)
    why = (reason or "it is undefined for too many pairs") if math.isnan(value) else ""
    return {"measure": entry.name, "statistic": name, "value": value, "low": low, "high": high, "reason": why}


def _matrix(entry: Measure, reps: list[Representations]) -> tuple[np.ndarray, float, str]:
    """Return how alike every two are by a measure (higher is more), the seconds that took, and a reason for NaN."""
    count = sum(len(part.layers) for part in reps)
    names = [str(k) for k in range(len(reps))]
    start = time.perf_counter()
    try:
        similarity = compare(
            reps if len(reps) > 1 else reps[0], measure=entry.name, **({"names": names} if len(reps) > 1 else {})
        )
    except LayerscopeError as error:  # such as layers of different widths
        return np.full((count, count), np.nan), time.perf_counter() - start, str(error)
    seconds = time.perf_counter() - start
    values = np.asarray(similarity.values, dtype=float)
    return -values if entry.distance else values, seconds, next(iter(similarity.reasons.values()), "")


def auprc(within: np.ndarray, across: np.ndarray) -> float:
    """Return the area under the precision-recall curve of telling pairs of one group from others; NaN are left out."""
    from sklearn.metrics import average_precision_score

    within, across = within[~np.isnan(within)], across[~np.isnan(across)]
    if not len(within) or not len(across):
        return math.nan
    same = np.repeat([1, 0], [len(within), len(across)])
    return float(average_precision_score(same, np.concatenate([within, across])))


def conformity(within: np.ndarray, across: np.ndarray) -> float:
    """Return how often a pair of one group is more alike than a pair of two groups; a tie is not. NaN are left out."""
    within, across = within[~np.isnan(within)], across[~np.isnan(across)]
    return float((within[:, None] > across).mean()) if len(within) and len(across) else math.nan


def layer_conformity(alike: np.ndarray) -> float:
    """Return how often a layer (n of them) is as alike to a near layer as to one behind that, or more."""
    held = [
        alike[i, near] >= alike[i, far]
        for i, near, far in _farther(len(alike))
        if not np.isnan(alike[i, [near, far]]).any()
    ]
    return float(np.mean(held)) if held else math.nan


def _farther(n: int) -> Iterator[tuple[int, int, int]]:
    """Yield every layer with two others on one side of it, the nearer one first."""
    for i in range(n):
        yield from ((i, near, far) for near, far in combinations(range(i + 1, n), 2))
        yield from ((i, near, far) for near, far in combinations(range(i - 1, -1, -1), 2))


def layer_correlation(alike: np.ndarray) -> float:
    """Return the mean Spearman correlation of unlikeness with the distance of layers, over both sides of each layer."""
    found = []
    for i in range(len(alike)):
        for side in (alike[i, i + 1 :], alike[i, :i][::-1]):
            found.append(spearman(-side, np.arange(1.0, len(side) + 1)))
    found = [value for value in found if not math.isnan(value)]
    return float(np.mean(found)) if found else math.nan


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    """Return the rank correlation of two arrays without what is NaN in either; NaN where one of them is constant."""
    from scipy.stats import rankdata

    there = ~(np.isnan(a) | np.isnan(b))
    a, b = a[there], b[there]
    if len(a) < 2 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return math.nan
    return float(np.corrcoef(rankdata(a), rankdata(b))[0, 1])


def _pairs(stay: np.ndarray, symmetric: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of models that stay: each once, or in both directions."""
    ordered = (combinations if symmetric else permutations)(stay.tolist(), 2)
    first, second = np.asarray(list(ordered)).reshape(-1, 2).T
    return first, second


def _correlated(differences: np.ndarray) -> Statistic:
    def statistic(alike: np.ndarray, symmetric: bool, stay: np.ndarray) -> float:
        at = _pairs(stay, symmetric)
        return spearman(-alike[at], differences[at])

    return statistic


def _grouped(group: np.ndarray) -> dict[str, Statistic]:
    """Return the statistics of models whose groups are known, each averaged over the groups."""

    def over_groups(one: Callable[[np.ndarray, np.ndarray], float]) -> Statistic:
        def statistic(alike: np.ndarray, symmetric: bool, stay: np.ndarray) -> float:
            found = []
            for name in np.unique(group):
                inside, outside = stay[group[stay] == name], stay[group[stay] != name]
                if len(inside) < 2:
                    return math.nan
                found.append(one(alike[_pairs(inside, symmetric)], alike[np.ix_(inside, outside)].reshape(-1)))
            return float(np.mean(found))

        return statistic

    return dict(zip(STATISTICS[GROUPS], (over_groups(auprc), over_groups(conformity)), strict=True))


def _differences(values: Sequence[float]) -> np.ndarray:
    scores = np.asarray(values, dtype=float)
    return np.abs(scores[:, None] - scores)


def _outputs(logits: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return (models, models) the mean Jensen-Shannon divergence of answers in bits, and the share that disagree."""
    from scipy.special import rel_entr, softmax

    n = len(logits)
    divergence, disagreement = np.zeros((n, n)), np.zeros((n, n))
    answers = [softmax(np.asarray(part, dtype=float), axis=1) for part in logits]
    for i, j in combinations(range(n), 2):
        middle = (answers[i] + answers[j]) / 2
        both = (rel_entr(answers[i], middle).sum(axis=1) + rel_entr(answers[j], middle).sum(axis=1)) / 2
        divergence[i, j] = divergence[j, i] = float(both.mean()) / math.log(2)
        differ = logits[i].argmax(axis=1) != logits[j].argmax(axis=1)
        disagreement[i, j] = disagreement[j, i] = float(differ.mean())
    return divergence, disagreement
