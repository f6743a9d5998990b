"""Are two models the same up to a map? Aligners fitted on the same texts, layer by layer, and scored on others.

Ren et al. 2023, table 4 and figures 2 to 5. Every aligner is kept in the store.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import numpy as np

from layerscope.alignment.aligner import Aligner
from layerscope.alignment.fitting import Fitting, Place, fit_all
from layerscope.alignment.methods import Options, check_methods, usable
from layerscope.alignment.misses import relative_without
from layerscope.alignment.results import AlignmentStudy
from layerscope.alignment.sides import Attention, Correspondence, Side, States
from layerscope.data import Examples
from layerscope.data import task as open_task
from layerscope.engine import check_engine
from layerscope.errors import InputError, check_count, check_seed, choose
from layerscope.evaluation.leaving_out import GROUPS, groups_of
from layerscope.extraction.reading import Reading
from layerscope.models import Model, load
from layerscope.results import provenance_of
from layerscope.similarity.registry import measure

SIMILARITY = "pwcca"  # it weights correlations and gives no map, so the tables show its similarity
WHAT = ("states", "attention")
AGAINST = ("same", "every")
SPLITS = ("train", "test")

Sides = tuple[Side, Side]  # the rows of one model that aligners learn from, and those that they are scored on


def alignment_study(
    models: Mapping[str, Any] | Sequence[Any],
    task: Any,
    *,
    layers: Sequence[int] | None = None,
    methods: Sequence[str] | None = None,
    pairs: int = 8,
    of: str = "states",
    against: str = "same",
    pool: str = "mean",
    train: int = 1600,
    test: int = 1600,
    max_length: int = 128,
    seed: int = 0,
    options: Options | None = None,
    engine: str = "local",
) -> AlignmentStudy:
    """Fit every method from each model to another, on some texts, and score it on those and on others.

    Args:
        models: Two or more models, or one with `against="every"`; a mapping gives them names.
        task: The texts.
        layers: Which layers; all of them if not given.
        methods: Alignment methods, and `pwcca` for its similarity; all that fit the widths if not given.
        pairs: How many ordered pairs of models are drawn.
        of: `states`, or `attention` for attention weights: one row per pair of words (of tokens where the task has no
            words), one column per attention head.
        against: `same` maps each layer to that of the same number, `every` to every layer (figure 3).
        pool: How token states become rows.
        train: How many texts aligners learn from.
        test: How many texts they are scored on.
        max_length: The longest text in tokens.
        seed: Decides pairs, folds and networks.
        options: A method's own, such as `{"inn": {"steps": 500}}`.
        engine: Where the fits run: `local` (one after another, here), `processes:N`, `ray` or `ray:ADDRESS`.

    Returns:
        The study: `frame` has one row per pair of models, pair of layers, method and split, with intervals over texts;
        `summary` one per method.

    Example:
        >>> import pandas
        >>> import layerscope as ls
        >>> texts = pandas.DataFrame({"text": [f"{word} {k}" for word in ("file", "list") for k in range(20)]})
        >>> seeds = ["garden:bert-s0", "garden:bert-s1"]
        >>> study = ls.alignment_study(seeds, texts, methods=["mean", "linear"], layers=[4], pairs=1)
        >>> study.summary["method"].tolist()
        ['mean', 'linear']
        >>> sorted(study.frame["split"].unique())
        ['test', 'train']
    """
    import pandas

    check_methods(methods, options, SIMILARITY)
    choose("alignment of", of, WHAT)
    choose("alignment against", against, AGAINST)
    check_seed(seed)
    check_engine(engine)
    reading = Reading(pool, max_length=max_length)
    opened = _opened(models)
    parts = parts_of(open_task(task), train, test)
    drawn = _pairs(list(opened), pairs, against, seed)
    sides = _sides({name: opened[name] for pair in drawn for name in pair}, parts, layers, of, reading, seed)
    comparisons = []
    for pair in drawn:
        source, target = (sides[name] for name in pair)
        places = _places(source[0], target[0], against)
        chosen = methods if methods is not None else [*usable(source[0].width, target[0].width, options), SIMILARITY]
        for method in chosen:
            fitting = None
            if method != SIMILARITY:
                given, device = (options or {}).get(method, {}), target[0].model.device
                fitting = Fitting(source[0], target[0], places, method, seed, given, device)
            comparisons.append(_Comparison(pair, source, target, places, method, fitting))
    asked = [(c.fitting, c.name) for c in comparisons if c.fitting is not None]
    fitted = iter(fit_all([fitting for fitting, _ in asked], "alignment", engine, [name for _, name in asked]))
    scored = [row for c in comparisons for row in c.scored(next(fitted) if c.fitting is not None else None)]
    rows, left_out = [row for row, _ in scored], np.asarray([without for _, without in scored])
    settings = {
        "methods": list(dict.fromkeys(c.method for c in comparisons)),
        "layers": None if layers is None else [int(layer) for layer in layers],
        "pairs": len(drawn),
        "of": of,
        "against": against,
        "pool": pool if of == "states" else None,
        "train": train,
        "test": test,
        "max_length": max_length,
        "seed": seed,
        "options": {name: dict(given) for name, given in options.items()} if options else None,
    }
    provenance = provenance_of([own[0].model for own in sides.values()], parts[1], settings)
    return AlignmentStudy(pandas.DataFrame(rows), provenance, left_out)


@dataclass(frozen=True)
class _Comparison:
    """One method between the layers of one pair of models."""

    pair: tuple[str, str]
    source: Sides
    target: Sides
    places: Sequence[Place]
    method: str
    fitting: Fitting | None  # None for a similarity, which has no map

    @property
    def name(self) -> str:
        """What its fitting is called as a job."""
        return f"{self.method} from {self.pair[0]} to {self.pair[1]}"

    def scored(self, aligners: Sequence[Aligner] | None) -> Iterator[tuple[dict[str, Any], np.ndarray]]:
        """One row per pair of layers and split, and its error without each group of texts."""
        for k, (a, b) in enumerate(self.places):
            for part, split in enumerate(SPLITS):
                x, y = self.source[part][a], self.target[part][b]
                about = {"source": self.pair[0], "target": self.pair[1], "layer": a, "target_layer": b}
                about |= {"method": self.method, "split": split, "n": len(x)}
                texts, without = self.source[part].texts, np.full(GROUPS, np.nan)  # few texts make fewer groups
                if aligners is None:
                    yield {**about, "similarity": measure(self.method)(x, y)}, without
                else:
                    errors = aligners[k].error(x, y, texts=texts)
                    left_out = relative_without(aligners[k](x), y, groups_of(texts))
                    without[: len(left_out)] = left_out
                    yield {**about, **errors, "round_trip": aligners[k].report_["round_trip"]}, without


def parts_of(task: Any, train: int, test: int) -> tuple[Examples, Examples]:
    """The texts to learn from and those to score: no text, and so no two words of one text, is in both."""
    check_count(train, "train")
    check_count(test, "test")
    parts: tuple[Examples, Examples] = task.parted(test / (train + test), limits=(train, test))
    return parts


def _sides(
    models: Mapping[str, Model],
    parts: tuple[Examples, Examples],
    layers: Sequence[int] | None,
    of: str,
    reading: Reading,
    seed: int,
) -> dict[str, Sides]:
    """The rows of each model, not read yet."""
    meetings = [Correspondence() for _ in parts]

    def side(model: Model, part: int) -> Side:
        if of == "attention":
            return Attention(model, parts[part], layers, reading.max_length, meetings[part], seed)
        return States(model, parts[part], layers, reading, meetings[part])

    return {name: (side(model, 0), side(model, 1)) for name, model in models.items()}


def _opened(models: Mapping[str, Any] | Sequence[Any]) -> dict[str, Model]:
    if isinstance(models, Mapping):
        return {str(name): load(model) for name, model in models.items()}
    loaded = [load(model) for model in models]
    names = [model.name for model in loaded]
    return {
        name if names.count(name) == 1 else f"{name} ({k + 1})": model
        for k, (name, model) in enumerate(zip(names, loaded, strict=True))
    }


def _pairs(names: Sequence[str], count: int, against: str, seed: int) -> list[tuple[str, str]]:
    """At most so many ordered pairs of different models, drawn; a model with itself where it is alone."""
    if count < 1:
        raise InputError(f"pairs is {count}; it must be at least 1.")
    if len(names) == 1:
        if against == "same":
            raise InputError(
                "One model was given; an alignment study maps between two or more, or with against='every' "
                "(--against every) between the layers of one."
            )
        return [(names[0], names[0])]
    if count == 1 and len(names) == 2:
        return [(names[0], names[1])]  # as they were given
    everything = list(permutations(names, 2))
    places = np.random.default_rng(seed).permutation(len(everything))[:count]
    return [everything[k] for k in sorted(places)]


def _places(source: Side, target: Side, against: str) -> list[Place]:
    """Which layer goes to which."""
    if against == "every":
        return [(a, b) for a in source.layers for b in target.layers]
    common = [layer for layer in source.layers if layer in target.layers]
    if not common:
        raise InputError("The two models have no layer of the same number; use against='every' (--against every).")
    return [(layer, layer) for layer in common]
