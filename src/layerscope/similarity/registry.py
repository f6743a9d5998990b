"""The registry of measures: what each is, what it needs of a side and of a pair, and how to call it on two matrices.

The options of measures: keyword-only arguments of their functions, and the kinds of value that these take.

The measures' formulas in LaTeX, for pages; X and Y are centred unless `raw` is said.
"""

from __future__ import annotations

import inspect
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import torch
from torch import Tensor

from layerscope.arguments import unusable
from layerscope.errors import InputError, LayerscopeWarning, near
from layerscope.extraction.representations import real_numbers
from layerscope.registry import MEASURES
from layerscope.resampling import numbered

if TYPE_CHECKING:
    import pandas


_KINDS: dict[str, tuple[Any, str]] = {
    "int": (Integral, "a whole number"),
    "float": (Real, "a number"),
    "bool": ((bool, np.bool_), "true or false"),
    "str": (str, "a word"),
}


@cache
def keywords(function: Callable[..., Any]) -> dict[str, str]:
    """The names of a function's keyword-only arguments, with their annotations, such as `int | None`."""
    parameters = inspect.signature(function).parameters.values()
    return {p.name: inspect.formatannotation(p.annotation) for p in parameters if p.kind is p.KEYWORD_ONLY}


def given(function: Callable[..., Any], options: dict[str, Any]) -> dict[str, Any]:
    """Those of the options that a function takes."""
    return {name: value for name, value in options.items() if name in keywords(function)}


def check_kind(name: str, value: Any, annotation: str) -> None:
    """Raise InputError unless an option's value is what its annotation says; kinds that are not known take any."""
    kind, *others = annotation.strip("'").split(" | ")
    if kind not in _KINDS or (value is None and "None" in others):
        return
    types, said = _KINDS[kind]
    if not isinstance(value, types) or (isinstance(value, bool) and kind != "bool"):
        raise InputError(f"{name} is {value!r}; it must be {said}.")
    if fault := unusable(value):
        raise InputError(f"{name} is {value!r}; {fault}.")


Invariance = Literal["orthogonal", "scaling", "linear", "translation"]
Needs = Literal["moments", "sums", "rows", "attention"]
Cross = Literal["scatter", "hsic"]
SAME = "every row is the same up to rounding: no column varies by a millionth of its mean"
CONSTANT = 1e-12  # variance below this share of the squared mean is rounding: all rows are the same


class Undefined(Exception):  # noqa: N818  (not an error: the value is NaN, with this reason)
    """The measure has no value here; the message says why."""


@dataclass(frozen=True)
class Measure:
    """One measure. Called on two matrices (n, d) and (n, d'), it gives a float; NaN, with a warning, if undefined.

    With `needs="moments"` `compute(x, y, cross)` takes two `Side`s (or what `factor` makes of each) and what their pair
    has in common: the cross scatter, or the unbiased HSIC. With `needs="rows"` it takes what `factor` makes of the rows
    of each side. What `factor` makes is made once per layer. With `needs="sums"` it is a mean over rows, of layers of
    one width: `compute(left, right, cosines)` takes the unit rows of several layers on either side, (k, R, d) and
    (k, C, d), with their cosines (k, R, C), and gives a value for each (k, R, C).
    """

    name: str
    family: str
    symmetric: bool
    low: float
    high: float
    invariances: tuple[Invariance, ...]
    needs: Needs
    source: str
    compute: Callable[..., Any]
    exact: bool = False  # products must be made in float64, as where a covariance is inverted
    estimate: bool = False  # an estimate from part of the row pairs
    factor: Callable[..., Any] | None = None  # of one side: of its `Side`, or of its rows
    cross: Cross = "scatter"  # of moments: what a pair has in common
    dual: Callable[[Tensor, int, int], float] | None = None  # the same from inner products of n x n Gram matrices
    # What those are made of: the Gram matrix of centred rows, and the text of every row.
    gram: Callable[..., Tensor] | None = None
    # Of rows: the values of all pairs from all layers at once, where that is faster than layer by layer; or None. It
    # takes `part(layer, start, stop)`, the numbers of layers and of rows, and options, and gives a function of a pair.
    together: Callable[..., Callable[[int, int], float] | None] | None = None
    by_text: bool = False  # of rows: its functions take the text of every row besides, or None where each is its own
    reorder: Callable[[Any, Tensor], Any] | None = None  # the factor of rows[order] from that of the rows
    unbiased: str | None = None  # the measure of the same thing without the bias of few rows
    distance: bool = False  # lower is more alike
    metric: bool = False  # a distance that is 0 between equal sides and keeps the triangle inequality
    growth: float = 0.0  # the power of the number of rows as which its values grow
    caveat: str = ""  # what to keep in mind when reading its values
    doc: str = ""

    def __call__(self, x: Any, y: Any, *, texts: Any = None, **options: Any) -> float:
        """The measure of two matrices with the same rows.

        `texts` has the text of every row (numbers or names), where texts have several rows. Unbiased HSIC leaves pairs
        of rows of one text out (`cka_debiased`, `cka_minibatch`); to all other measures it makes no difference.
        """
        try:
            first, second = self._tamed(*checked(x, y))
            return finite(self.value(first, second, None if texts is None else numbered(texts, len(first)), **options))
        except Undefined as reason:
            warnings.warn(f"{self.name} is undefined: {reason}.", LayerscopeWarning, stacklevel=2)
            return math.nan

    def _tamed(self, *matrices: Tensor) -> tuple[Tensor, ...]:
        """Matrices whose products no float64 holds, brought near 1, if the measure does not mind their scale."""
        return tuple(matrix / _extreme(matrix) for matrix in matrices) if "scaling" in self.invariances else matrices

    @property
    def by_head(self) -> bool:
        """Whether it compares attention heads one by one."""
        return False

    def value(self, x: Tensor, y: Tensor, texts: np.ndarray | None = None, **options: Any) -> float:
        """The same for checked float64 matrices; raises Undefined with the reason."""
        self.check_options(options)
        if self.needs == "sums":
            return self._mean_over_rows(x, y)
        require_rows(len(x))
        if self.needs == "rows":
            return self.of_factors(*(self.factored(m, texts, **options) for m in (x, y)), **options)

        from layerscope.similarity.layer_statistics import pair_of

        given = dict(options)
        x_side, y_side, cross = pair_of(x, y, self.cross, given.pop("standardize", False), texts)
        return self.of_pair(self.prepared(x_side, **given), self.prepared(y_side, **given), cross, **given)

    def _mean_over_rows(self, x: Tensor, y: Tensor) -> float:
        from layerscope.similarity.row_means import RowSums

        widths = [x.shape[1], y.shape[1]]
        if widths[0] != widths[1]:
            raise InputError(
                f"{self.name} compares matrices of one width, and the arguments have {widths[0]} and {widths[1]} "
                "columns."
            )
        sums = RowSums([self], widths, [0], [1], x.device)
        sums.update([x, y])
        return sums.value(self.name, 0, 1)

    def prepared(self, side: Any, **options: Any) -> Any:
        """What a pair needs of one `Side`: the side itself, or what `factor` makes of it."""
        return side if self.factor is None else self.factor(side, **given(self.factor, options))

    def of_pair(self, x: Any, y: Any, cross: Any, **options: Any) -> float:
        """A measure of moments, from two prepared sides and what their pair has in common."""
        return float(self.compute(x, y, cross, **given(self.compute, options)))

    def factored(self, x: Tensor, texts: np.ndarray | None = None, **options: Any) -> Any:
        """What a pair needs of one side's rows (float64; an estimate takes them as they are)."""
        require_rows(len(x))
        if not (varies(x[:64]) or varies(x)):
            raise Undefined(SAME)
        assert self.factor is not None
        return self.factor(x, *self._own_texts(texts), **given(self.factor, options))

    def _own_texts(self, texts: np.ndarray | None) -> tuple[np.ndarray | None, ...]:
        """What is passed on of the rows' texts: nothing to measures that do not ask for them."""
        if not self.by_text:
            return ()
        return (None if texts is None or len(np.unique(texts)) == len(texts) else texts,)

    def of_factors(self, a: Any, b: Any, **options: Any) -> float:
        """A measure of rows, from two factored sides."""
        return float(self.compute(a, b, **given(self.compute, options)))

    def of_all(
        self, part: Callable[[int, int, int], Tensor], layers: int, rows: int, texts: np.ndarray, **options: Any
    ) -> Any:
        """A measure of rows: the function of two layers that `together` gives, or None where there is none."""
        if self.together is None:
            return None
        return self.together(part, layers, rows, *self._own_texts(texts), **given(self.together, options))

    def check_options(self, options: dict[str, Any]) -> None:
        """Raise InputError for an option that the measure does not have, or that is not of the kind that it takes."""
        kinds = {name: kind for function in self._functions() for name, kind in keywords(function).items()}
        for name, value in options.items():
            if name not in self.options():
                raise InputError(
                    f"The measure {self.name} has no option {name!r}; it has "
                    f"{', '.join(self.options()) or 'none'}.{near(name, self.options())}"
                )
            check_kind(name, value, kinds.get(name, "bool"))  # standardize and causal are flags

    def own(self, options: dict[str, Any]) -> dict[str, Any]:
        """Those of some options that are its own: `keep` is of every measure that has it, `svcca.keep` of one."""
        shared = {name: value for name, value in options.items() if name in self.options()}
        mine = {
            name.removeprefix(f"{self.name}."): v for name, v in options.items() if name.startswith(f"{self.name}.")
        }
        return shared | mine

    def _functions(self) -> list[Callable[..., Any]]:
        return [f for f in (self.factor, self.compute) if f is not None]

    def options(self) -> list[str]:
        """The names of its options: keyword-only arguments of its functions."""
        names = [name for function in self._functions() for name in keywords(function)]
        scaled = ["standardize"] if self.needs == "moments" and self.cross == "scatter" else []
        return list(dict.fromkeys([*names, *scaled]))


def register(
    name: str,
    *,
    family: str,
    symmetric: bool,
    bounds: tuple[float, float],
    invariances: tuple[Invariance, ...],
    needs: Needs,
    source: str,
    kind: type[Measure] = Measure,
    **entry: Any,
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enter a function into the registry. Its (and its factor's) keyword-only arguments are the measure's options.

    `entry` takes the other fields of `Measure`: exact, estimate, factor, cross, dual, gram, together,
    reorder, unbiased, distance, metric, growth, caveat.
    """

    def enter(compute: Callable[..., Any]) -> Callable[..., Any]:
        doc = (compute.__doc__ or "").strip()
        MEASURES[name] = kind(name, family, symmetric, *bounds, invariances, needs, source, compute, doc=doc, **entry)
        return compute

    return enter


def measure(name: str) -> Measure:
    """Look a measure up.

    Args:
        name: Its name; `ls.measures()` lists them.

    Returns:
        The measure: call it on two matrices (n, d) and (n, d'), numpy or torch, with its options.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> rows = np.random.default_rng(0).normal(size=(100, 5))
        >>> round(ls.measure("cka")(rows, 3 * rows + 1), 6)
        1.0
    """
    return MEASURES[name]


def measures() -> pandas.DataFrame:
    """List the measures of similarity.

    Returns:
        A table with the columns name, family, symmetric, metric (whether it is a distance that keeps the triangle
        inequality), low, high, invariances, needs, source.

    Example:
        >>> import layerscope as ls
        >>> known = ls.measures().set_index("name")
        >>> bool(known.loc["cka", "symmetric"]), known.loc["cka", "needs"]
        (True, 'moments')
    """
    import pandas

    return pandas.DataFrame(
        [
            {
                "name": m.name,
                "family": m.family,
                "symmetric": m.symmetric,
                "metric": m.metric,
                "low": m.low,
                "high": m.high,
                "invariances": ", ".join(m.invariances),
                "needs": m.needs,
                "source": m.source,
            }
            for m in MEASURES.values()
        ]
    )


def require_rows(n: float) -> None:
    """Raise where there are too few rows to see how rows vary."""
    if n < 2:
        raise Undefined("one row has no variation" if n else "there are no rows")
    if n < 3:
        raise Undefined("two rows lie on a line in every layer, which makes all layers alike, whatever the data")


def varies(x: Tensor) -> bool:
    """Whether the rows differ by more than rounding: in some column, beside that column's own mean."""
    mean = x.mean(dim=0, dtype=torch.float64)
    return bool(((x - mean).pow(2).sum(dim=0) > CONSTANT * len(x) * mean**2).any())


def finite(value: float) -> float:
    """The value; raises Undefined where it is not a number."""
    if not math.isfinite(value):
        raise Undefined("the states are too large or too small to compute with in float64")
    return value


def _extreme(matrix: Tensor) -> float:
    """A power of two near the largest number where its fourth power is beyond float64, else 1."""
    most = float(matrix.abs().max())
    return 1.0 if 1e-60 < most < 1e60 or not most else 2.0 ** math.floor(math.log2(most))


def checked(x: Any, y: Any) -> tuple[Tensor, Tensor]:
    """Two matrices in float64 on one device, or the error that says what is wrong with them."""
    matrices = []
    for name, value in (("first", x), ("second", y)):
        matrix = real_numbers(f"The {name} argument", value).detach()
        if matrix.ndim != 2 or not matrix.shape[1]:
            raise InputError(f"The {name} argument has shape {tuple(matrix.shape)}; a matrix (n, d) is needed.")
        matrix = matrix.to(torch.float64)
        if not bool(torch.isfinite(matrix).all()):
            row = int((~torch.isfinite(matrix)).any(dim=1).nonzero()[0])
            raise InputError(f"The {name} argument has a NaN or an infinity in row {row}; leave such rows out first.")
        matrices.append(matrix)
    first, second = matrices
    if len(first) != len(second):
        raise InputError(
            f"The arguments have {len(first)} and {len(second)} rows; row i must be the same thing in both."
        )
    if not len(first):
        raise InputError("The arguments have no rows.")
    return first, second.to(first.device)


_CKA = r"\frac{\lVert X^\top Y \rVert_F^2}{\lVert X^\top X \rVert_F \, \lVert Y^\top Y \rVert_F}"
_COSINE = r"\frac{\langle x_i, y_i \rangle}{\lVert x_i \rVert \, \lVert y_i \rVert}"
FORMULAS = {
    "cka": _CKA,
    "procrustes": r"\frac{\lVert X^\top Y \rVert_*}{\lVert X \rVert_F \, \lVert Y \rVert_F}",
    "cca": r"\frac{1}{m} \sum_{i=1}^{m} \rho_i",
    "cca_squared": r"\frac{1}{m} \sum_{i=1}^{m} \rho_i^2",
    "pwcca": r"\frac{\sum_i a_i \rho_i}{\sum_i a_i}",
    "linear_regression": r"\frac{\lVert Q_X^\top Y \rVert_F^2}{\lVert Y \rVert_F^2}",
    "distance_correlation": r"\sqrt{\frac{\sum_{ij} A_{ij} B_{ij}}{\sqrt{\sum_{ij} A_{ij}^2 \sum_{ij} B_{ij}^2}}}",
    "mutual_knn": r"\frac{1}{n} \sum_i \frac{|N_X(i) \cap N_Y(i)|}{k}",
    "jaccard_knn": r"\frac{1}{n} \sum_i \frac{|N_X(i) \cap N_Y(i)|}{|N_X(i) \cup N_Y(i)|}",
    "cosine": rf"\frac{{1}}{{n}} \sum_i {_COSINE}",
    "angular": rf"\frac{{1}}{{\pi n}} \sum_i \arccos {_COSINE}",
}
CALIBRATED = r"\max\left(0, \frac{s - \tau}{1 - \tau}\right)"
CALIBRATED_DISTANCE = r"\max\left(0, \frac{\tau - s}{\tau}\right)"
