"""What each measure sees and what it is blind to: pairs of layers that differ in one known way."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import numpy as np
import pandas

import layerscope as ls

TITLE = "What each measure is blind to"
TEXT = """
X has 1,000 rows and 32 columns whose variances fall from 1 to .01. Y is made of X in one known way, or has nothing to
do with it but one known thing. A similarity that gives 1, or a distance that gives 0, cannot see the change; one that
gives no more (a distance: no less) than for independent layers sees nothing of what is shared. Means over the rounds.
Distances: `angular`, `gulp`, `imd`, `permutation_procrustes`, `procrustes_angular`, `procrustes_size_and_shape`,
`rsm_norm_difference` and those that end in `_difference`; some have the unit of the states.

- **rotated**: Y = X Q, Q orthogonal. **columns rescaled**: each column by a factor between .1 and 10. **mixed**: Y =
  X A, A any invertible matrix (condition number 30). **warped**: Y = s sinh(x / s) for each entry, s its column's
  spread.
- **with noise**: Y = [X, as many columns of noise of the same size].
- **shared direction**: X and Y are independent except for one column that they share, with ten times the spread of all
  others together. **shared groups**: five groups of texts lie apart in the same way in both; within a group nothing is
  shared. **a quarter shared**: of the variance of every column.
- **independent**: nothing is shared. **few rows**: the same with 64 rows.
"""
ROUNDS = 20
SLOW = True
_ROWS, _WIDTH = 1000, 32
_OPTIONS = {"cka_minibatch": {"batch": 250}}

Pair = tuple[np.ndarray, np.ndarray]
Change = Callable[[np.random.Generator, int], Pair]


def _layer(generator: np.random.Generator, rows: int) -> np.ndarray:
    return generator.standard_normal((rows, _WIDTH)) * np.geomspace(1, 0.1, _WIDTH)


def _orthogonal(generator: np.random.Generator) -> np.ndarray:
    return np.linalg.qr(generator.standard_normal((_WIDTH, _WIDTH)))[0]


def _of(change: Callable[[np.random.Generator, np.ndarray], np.ndarray]) -> Change:
    def pair(generator: np.random.Generator, rows: int) -> Pair:
        x = _layer(generator, rows)
        return x, change(generator, x)

    return pair


def _mixed(generator: np.random.Generator, x: np.ndarray) -> np.ndarray:
    return x @ _orthogonal(generator) @ np.diag(np.geomspace(1, 1 / 30, _WIDTH)) @ _orthogonal(generator)


def _shared_direction(generator: np.random.Generator, rows: int) -> Pair:
    x, y = _layer(generator, rows), _layer(generator, rows)
    x[:, 0] = y[:, 0] = generator.standard_normal(rows) * 10 * np.sqrt(x[:, 1:].var(axis=0).sum())
    return x, y


def _shared_groups(generator: np.random.Generator, rows: int) -> Pair:
    group = generator.integers(5, size=rows)
    means = generator.standard_normal((5, _WIDTH)) * np.geomspace(1, 0.1, _WIDTH) * 2
    return _layer(generator, rows) + means[group], _layer(generator, rows) + (means @ _orthogonal(generator))[group]


def _quarter_shared(generator: np.random.Generator, rows: int) -> Pair:
    shared = _layer(generator, rows) * 0.25**0.5
    return tuple(shared + _layer(generator, rows) * 0.75**0.5 for _ in range(2))  # type: ignore[return-value]


CHANGES: dict[str, Change] = {
    "rotated": _of(lambda generator, x: x @ _orthogonal(generator)),
    "columns rescaled": _of(lambda generator, x: x * 10 ** generator.uniform(-1, 1, _WIDTH)),
    "mixed": _of(_mixed),
    "warped": _of(lambda _, x: np.sinh(x / x.std(axis=0)) * x.std(axis=0)),
    "with noise": _of(lambda generator, x: np.hstack([x, generator.permutation(x)])),
    "shared direction": _shared_direction,
    "shared groups": _shared_groups,
    "a quarter shared": _quarter_shared,
    "independent": lambda generator, rows: (_layer(generator, rows), _layer(generator, rows)),
    "few rows": lambda generator, _: (_layer(generator, 64), _layer(generator, 64)),
}


def table(rounds: int, seed: int) -> pandas.DataFrame:
    """One row per measure of states, one column per change."""
    known = ls.measures()
    names = list(known.loc[known["needs"] != "attention", "name"])
    pairs = {
        name: [change(np.random.default_rng([seed, place, k]), _ROWS) for k in range(rounds)]
        for place, (name, change) in enumerate(CHANGES.items())
    }
    return pandas.DataFrame([{"measure": name, **{of: _mean(name, pairs[of]) for of in CHANGES}} for name in names])


def _mean(name: str, pairs: list[Pair]) -> float:
    """NaN where the measure has no value for such a pair, as for sides of two widths."""
    measure = ls.measure(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return float(np.mean([measure(x, y, **_OPTIONS.get(name, {})) for x, y in pairs]))
        except ls.LayerscopeError:
            return float("nan")
