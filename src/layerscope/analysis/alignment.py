"""Are two models the same up to a map? Aligners fitted on the same texts, layer by layer, and scored on others.

Ren et al. 2023, table 4 and figures 2 to 5. Every aligner is kept in the store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from layerscope.alignment import METHODS, Aligner, align_all, load_aligner
from layerscope.data import task as open_task
from layerscope.errors import InputError, check_seed, choose, log
from layerscope.extract import attentions, extract
from layerscope.extract.run import check_limit
from layerscope.measures import measure
from layerscope.models import Model, load
from layerscope.models.identity import tokenizer_fingerprint
from layerscope.progress import progress
from layerscope.store import Store, digest

if TYPE_CHECKING:
    import pandas

VERSION = 2  # of what an aligner learns: a change makes other artifacts
SIMILARITY = "pwcca"  # it weights correlations and gives no map, so the tables show its similarity
STUDIED = ("mean", "procrustes", "linear", "cca", "svcca", SIMILARITY, "inn", "mlp")
WHAT = ("states", "attention")
AGAINST = ("same", "every")
_ROWS = 20_000  # word pairs of attention, at most


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
    options: Mapping[str, Mapping[str, Any]] | None = None,
) -> pandas.DataFrame:
    """Fit every method from each model to another, on `train` texts, and score it on those and on `test` others.

    `pairs` of models are drawn. `against="every"` maps every layer to every other, as within one model (figure 3).
    `of="attention"` aligns attention weights: a row is a pair of words (of tokens where the task has no words), a
    column an attention head. `options` are a method's own, such as {"inn": {"start": "linear"}}. A row of the table is
    a pair, its layers, a method and a split.
    """
    import pandas

    for method in methods or ():
        choose("alignment method", method, (*METHODS, SIMILARITY))
    choose("alignment of", of, WHAT)
    choose("alignment against", against, AGAINST)
    check_seed(seed)
    opened = _opened(models)
    rows = _Rows(open_task(task), layers, of, pool, train, test, max_length, seed)
    found = []
    chosen = _pairs(list(opened), pairs, against, seed)
    with progress("alignment", len(chosen), "pairs") as advance:
        for one, two in chosen:
            sides = [rows.of(opened[name]) for name in (one, two)]
            places = _places(sides[0], sides[1], against)
            widths = [next(iter(side[0].values())).shape[1] for side in sides]
            for method in usable(STUDIED, *widths) if methods is None else methods:
                own = (options or {}).get(method, {})
                found += _scored(one, two, places, sides, method, seed, own, opened[two].device)
            advance(1)
    return pandas.DataFrame(found)


Sides = tuple[dict[int, Tensor], dict[int, Tensor]]  # train and test rows of every layer


def _scored(
    one: str,
    two: str,
    places: Sequence[tuple[int, int]],
    sides: Sequence[Sides],
    method: str,
    seed: int,
    options: Mapping[str, Any],
    device: torch.device,
) -> list[dict[str, Any]]:
    """A row for each pair of layers and each split."""
    splits = {"train": 0, "test": 1}
    rows = []
    if method == SIMILARITY:
        for (a, b), (name, k) in ((place, split) for place in places for split in splits.items()):
            x, y = sides[0][k][a], sides[1][k][b]
            about = {"source": one, "target": two, "layer": a, "target_layer": b, "method": method, "split": name}
            rows.append({**about, "n": len(x), "similarity": measure(method)(x, y)})
        return rows
    fitted = align_stored([(sides[0][0][a], sides[1][0][b]) for a, b in places], method, seed, options, device)
    for (a, b), aligner in zip(places, fitted, strict=True):
        for name, k in splits.items():
            x, y = sides[0][k][a], sides[1][k][b]
            about = {"source": one, "target": two, "layer": a, "target_layer": b, "method": method, "split": name}
            rows.append({**about, "n": len(x), **aligner.error(x, y), "round_trip": aligner.report_["round_trip"]})
    return rows


def usable(methods: Sequence[str], one: int, two: int) -> list[str]:
    """Those of the methods that map between these widths."""
    kept = [m for m in methods if one == two or m == SIMILARITY or not METHODS[m].same_width]
    if len(kept) < len(methods):
        gone = ", ".join(method for method in methods if method not in kept)
        log.info("Without %s, which need one width on both sides (these have %d and %d).", gone, one, two)
    return kept


def align_stored(
    sides: Sequence[tuple[Tensor, Tensor]],
    method: str,
    seed: int,
    options: Mapping[str, Any],
    device: torch.device | str = "cpu",
) -> list[Aligner]:
    """`align_all` on a device, kept in the store under what it learns from."""

    def build(folder: Path) -> None:
        moved = [(x.to(device), y.to(device)) for x, y in sides]
        for k, aligner in enumerate(align_all(moved, method=method, seed=seed, **options)):
            aligner.save(folder / f"{k:04}.safetensors")

    content = [
        digest(*(side.numpy().tobytes() for side in pair), str([tuple(s.shape) for s in pair])) for pair in sides
    ]
    spec = {"version": VERSION, "method": method, "seed": seed, "options": dict(options), "sides": content}
    folder = Store().produce("aligners", spec, build)
    return [load_aligner(path) for path in sorted(folder.glob("*.safetensors"))]


class _Rows:
    """Which rows of a model are aligned: train and test rows of every layer."""

    def __init__(
        self,
        task: Any,
        layers: Sequence[int] | None,
        of: str,
        pool: str,
        train: int,
        test: int,
        max_length: int,
        seed: int,
    ) -> None:
        check_limit(train, "train")
        check_limit(test, "test")
        self.parts = task.parted(test / (train + test), limits=(train, test))
        self.options: dict[str, Any] = {"layers": layers, "max_length": max_length}
        self.pool, self.seed = pool, seed
        self._read = self._attention if of == "attention" else self._states
        self._identities: dict[int, Any] = {}  # of the first model's rows, by part

    def of(self, model: Model) -> Sides:
        return self._read(model, 0), self._read(model, 1)

    def _states(self, model: Model, part: int) -> dict[int, Tensor]:
        reps = extract(model, self.parts[part], pool=self.pool, **self.options)
        self._same(model, part, [reps.rows.units, *(values.tolist() for values in reps.rows.arrays().values())])
        return {layer: reps[layer] for layer in reps.layers}

    def _attention(self, model: Model, part: int) -> dict[int, Tensor]:
        """(pairs of words or tokens, attention heads) of some pairs, the same for every model."""
        units = "words" if self.parts[part].words is not None else "tokens"
        found = attentions(model, self.parts[part], pool=units, **self.options)
        sizes = [weights.shape[-1] ** 2 for weights in found[found.layers[0]]]
        self._same(model, part, [units if units == "words" else tokenizer_fingerprint(model.tokenizer), sizes])
        generator = np.random.default_rng(self.seed)
        some = generator.permutation(sum(sizes))[:_ROWS]
        at = torch.from_numpy(np.sort(some))
        return {layer: torch.cat([w.flatten(1).T for w in found[layer]])[at] for layer in found.layers}

    def _same(self, model: Model, part: int, identity: Any) -> None:
        """Raise a sentence unless the rows are those of the first model."""
        first = self._identities.setdefault(part, (model.name, identity))
        if first[1] != identity:
            raise InputError(
                f"{first[0]} and {model.name} read different words or tokens of the same texts, so their rows do not "
                "correspond: their tokenizers differ, or texts are cut off at max_length. Use a pool of whole texts "
                "(mean), or a larger max_length."
            )


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
    some = np.random.default_rng(seed).permutation(len(everything))[:count]
    return [everything[k] for k in sorted(some)]


def _places(one: Sides, two: Sides, against: str) -> list[tuple[int, int]]:
    """Which layer goes to which."""
    if against == "every":
        return [(a, b) for a in one[0] for b in two[0]]
    common = [layer for layer in one[0] if layer in two[0]]
    if not common:
        raise InputError("The two models have no layer of the same number; use against='every' (--against every).")
    return [(layer, layer) for layer in common]


def alignment_table(frame: pandas.DataFrame) -> pandas.DataFrame:
    """A row a method: mean and standard deviation over pairs and layers, on train and test rows, as in table 4."""
    import pandas

    kept = [name for name in ("mse", "relative", "similarity") if name in frame]
    rows = []
    for method, part in frame.groupby("method", sort=False):
        row: dict[str, Any] = {"method": method}
        for value in kept:
            for split in ("train", "test"):
                found = part[part["split"] == split][value]
                if found.notna().any():
                    row |= {f"{value} {split}": found.mean(), f"{value} {split} sd": found.std()}
        rows.append(row)
    return pandas.DataFrame(rows)
