"""An aligner: a fitted map from one representation space to another. `fit` learns, a call maps, `inverse` maps back.

The methods are one class per file of `aligners/`; listing their names imports none of them. Rows of one text are held
out together, so an aligner knows the text of each row: from representations, or from an argument beside arrays.
"""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from layerscope import resampling
from layerscope.alignment.alignment_error import error_of
from layerscope.arguments import check_arguments
from layerscope.drawing.captions import listed
from layerscope.errors import InputError, check_seed, choose, log
from layerscope.extraction.representations import Representations, check_finite, first_not_finite, real_numbers
from layerscope.extraction.row_store import Rows
from layerscope.registry import ALIGNERS
from layerscope.store import json_text, output_file

Options = Mapping[str, Mapping[str, Any]]  # by method, such as {"inn": {"start": "linear"}}


def variant(method: str) -> tuple[str, dict[str, Any]]:
    """The name of a method and the options that stand after it, as in `inn start=plain hidden=64`."""
    import yaml

    name, *given = method.split() or [method]
    options: dict[str, Any] = {}
    for part in given:
        option, sign, value = part.partition("=")
        if not (option and sign and value):
            raise InputError(f"{part!r} in {method!r} is not an option with its value, as in `inn start=plain`.")
        options[option] = yaml.safe_load(value)
    return name, options


def options_for(method: str, options: Options | None) -> dict[str, Any]:
    """The options of a method or a variant of one: those of the method itself, and those of the variant."""
    given, name = options or {}, variant(method)[0]
    return {**given.get(name, {}), **(given.get(method, {}) if method != name else {})}


def by_place() -> list[str]:
    """The names of all methods, from the floors that others must beat to the maps that can express the most."""
    return sorted(ALIGNERS, key=lambda method: (ALIGNERS[method].place, method))


def options_of(method: str) -> list[str]:
    """The names of a method's options, as its class takes them; every method has a seed beside them."""
    return [name for name in inspect.signature(ALIGNERS[method]).parameters if name != "seed"]


def with_option(option: str) -> list[str]:
    """The methods that have an option, such as `start` or `pad`."""
    return [method for method in by_place() if option in options_of(method)]


def of_any_widths() -> list[str]:
    """The methods that map between any two widths."""
    return [method for method in by_place() if not ALIGNERS[method].same_width]


def make(method: str, seed: int, options: Mapping[str, Any]) -> Aligner:
    """An aligner that is not fitted yet; raises InputError where the method, the seed or an option cannot be used."""
    method, own = variant(method)
    choose("alignment method", method, ALIGNERS)
    allowed, options = options_of(method), {**options, **own}
    if wrong := sorted(set(options) - set(allowed)):
        names = f"it has {', '.join(allowed)}" if allowed else "it has none"
        raise InputError(f"{method} has no option {', '.join(wrong)}; {names}.")
    return ALIGNERS[method](seed=check_seed(seed), **check_arguments(ALIGNERS[method].__init__, options))


def check_methods(methods: Sequence[str] | None, options: Options | None, *others: str) -> None:
    """Raise InputError for an unknown method among `methods` or `options`; `others` are allowed among `methods` too."""
    for method in methods or ():
        name, own = variant(method)
        choose("alignment method", name, (*ALIGNERS, *others))
        if own:
            make(method, 0, {})
    for method in options or ():
        choose("alignment method", variant(method)[0], ALIGNERS)


def usable(source_width: int, target_width: int, options: Options | None = None) -> list[str]:
    """The methods that map between these widths, in order; those that need one width count where `options` pad."""
    methods = by_place()
    if source_width == target_width:
        return methods
    padded = [method for method, given in (options or {}).items() if given.get("pad")]
    able = [method for method in methods if method in padded or not ALIGNERS[method].same_width]
    if len(able) < len(methods):
        left_out = ", ".join(method for method in methods if method not in able)
        log.info(
            "Without %s, which need one width on both sides (these have %d and %d).",
            *(left_out, source_width, target_width),
        )
    return able


Texts = Any  # one name or number per row, the `rows` of representations, or representations


def texts_of(texts: Texts, n: int, *sides: Any) -> np.ndarray:
    """The text of each of n rows, as numbers from 0.

    Without `texts` they are those of the first of the `sides` that is representations; without such a side every row is
    a text of its own.
    """
    if texts is None:
        texts = next((side for side in sides if isinstance(side, Representations)), None)
    if texts is None:
        return np.arange(n)
    if isinstance(texts, Representations):
        texts = texts.rows
    if isinstance(texts, Rows):
        texts = texts.row
    return resampling.numbered(texts, n)


def folds(texts: np.ndarray, count: int, seed: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """The positions that are held out and the others, for each of at most `count` folds of whole texts.

    The rows of a single text are split one by one, since there is no other text to hold out.
    """
    names = texts if len(np.unique(texts)) > 1 else np.arange(len(texts))
    fold = resampling.folds(names, min(count, len(np.unique(names))), seed=seed)
    return [(np.flatnonzero(fold == k), np.flatnonzero(fold != k)) for k in range(fold.max() + 1)]


Array = Any  # numpy or torch, (n, width), or representations of one layer
FORMAT, VERSION = "layerscope-aligner", 2  # of the file; raise the version when a map is stored in another way
_CHECKED = 2048  # rows on which the round trip is measured after a fit


class Aligner(ABC):
    """A map between two representation spaces; `ls.align` makes one.

    The constructor stores options, `fit` learns; what was learned ends in `_`. `report_` says how it was learned and,
    as `round_trip`, how far `inverse(self(X))` is from X on training rows, relative to the spread of X (NaN where there
    is no inverse).

    Example:
        >>> import numpy as np
        >>> import layerscope as ls
        >>> x = np.random.default_rng(0).normal(size=(100, 4))
        >>> aligner = ls.align(x, 2 * x + 1, method="procrustes")
        >>> aligner
        Procrustes(4 -> 4, 100 rows)
        >>> bool(np.allclose(aligner(x), 2 * x + 1))
        True
        >>> bool(np.allclose(aligner.inverse(aligner(x)), x))
        True
    """

    method: ClassVar[str]
    place: ClassVar[int]  # in lists of all methods: how much a map can express, floors first
    dtype: ClassVar[torch.dtype] = torch.float64
    same_width: ClassVar[str] = ""  # why both sides must have one width, if they must; then `pad` is an option
    no_inverse: ClassVar[str] = ""  # why there is no inverse, if there is none
    pad = False

    def __init__(self, *, seed: int = 0) -> None:
        self.seed = seed
        self.widths_: tuple[int, int] | None = None
        self.tensors_: dict[str, Tensor] = {}
        self.report_: dict[str, Any] = {}

    # A method implements these.

    @abstractmethod
    def _fit(self, x: Tensor, y: Tensor, texts: np.ndarray) -> dict[str, Any]:
        """Learn `tensors_` from rows (n, d) and (n, d') of these texts, and return the report."""

    @abstractmethod
    def _map(self, x: Tensor) -> Tensor: ...

    def _back(self, y: Tensor) -> Tensor:
        raise InputError(f"{self.method} has no inverse: {self.no_inverse}.")

    # Every method has these.

    def fit(self, x: Array, y: Array, *, texts: Texts = None) -> Self:
        """Learn the map from rows to rows.

        Args:
            x: Rows of the source (n, d), numpy or torch, or representations of one layer.
            y: The same rows of the target (n, d').
            texts: The text of each row, or the representations that the rows are of: rows of one text are held out
                together. Every row is a text of its own if not given.

        Returns:
            The aligner itself.
        """
        source, target, row_texts = self._pair(x, y, texts)
        self._start(source, target)
        wide = self._padded(source, target)
        self._end(source, self._fit(wide[0], wide[1], row_texts))
        return self

    def __call__(self, x: Array) -> Array:
        """Rows of the source (n, d) as rows of the target (n, d'), of the kind that went in."""
        return self._through(x, 0, self._map)

    def inverse(self, y: Array) -> Array:
        """Rows of the target (n, d') as rows of the source (n, d), of the kind that went in."""
        if self.no_inverse:
            raise InputError(f"{self.method} has no inverse: {self.no_inverse}.")
        return self._through(y, 1, self._back)

    def error(self, x: Array, y: Array, *, ci: float = 0.95, texts: Texts = None) -> dict[str, float]:
        """How far the mapped rows are from the target's, best on rows that were not learned from.

        Args:
            x: Rows of the source (n, d).
            y: The same rows of the target (n, d').
            ci: How much the intervals cover: 0.95 for 95 %.
            texts: The text of each row, or the representations that the rows are of. Rows of one text err alike, so
                intervals that take them for independent are too narrow. Every row is a text of its own if not given.

        Returns:
            `mse`, the mean squared error per entry, and `relative`, that over the variance of Y, each with an
            interval over texts (`_low`, `_high`; a jackknife that leaves out one text after the other).
        """
        return self._errors(*self._pair(x, y, texts), ci)

    def _errors(self, x: Tensor, y: Tensor, texts: np.ndarray, ci: float) -> dict[str, float]:
        """The errors that `error` gives, of checked rows; a method may add some."""
        return error_of(self(x), y, ci, texts)

    def save(self, path: str | Path) -> Path:
        """Write one safetensors file with the options and the report in it; `ls.load_aligner` reads it."""
        from safetensors.torch import save

        if self.widths_ is None:
            raise InputError("This aligner is not fitted yet; there is nothing to save.")
        header = {
            "format": FORMAT,
            "version": VERSION,
            "method": self.method,
            "options": self.options,
            "widths": self.widths_,
            "report": self.report_,
        }
        content = {name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors_.items()}
        with output_file(Path(path)) as temporary:
            temporary.write_bytes(save(content, {"layerscope": json_text(header)}))
        return Path(path)

    @property
    def options(self) -> dict[str, Any]:
        """The options of the constructor, with their values."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def to(self, device: torch.device | str) -> Self:
        """The same aligner on another device; a call moves it to its rows' device by itself."""
        self.tensors_ = {name: tensor.to(device) for name, tensor in self.tensors_.items()}
        return self

    def __repr__(self) -> str:
        if self.widths_ is None:
            return f"{type(self).__name__}(not fitted)"
        return f"{type(self).__name__}({self.widths_[0]} -> {self.widths_[1]}, {self.report_.get('n')} rows)"

    def _pair(self, x: Array, y: Array, texts: Texts) -> tuple[Tensor, Tensor, np.ndarray]:
        """Both sides as checked tensors on one device, and the text of each row."""
        if isinstance(x, Representations) and isinstance(y, Representations) and (why := x.rows.difference(y.rows)):
            raise InputError(f"The rows of X and Y are not the same: {why}.")
        source, target = self._tensor(x, "X"), self._tensor(y, "Y")
        if len(source) != len(target):
            raise InputError(f"X has {len(source)} rows and Y {len(target)}; an aligner learns from pairs of rows.")
        return source, target.to(source.device), texts_of(texts, len(source), x, y)

    def _tensor(self, rows: Array, name: str) -> Tensor:
        """Rows as a finite tensor (n, width) of the method's float type; raises InputError where they are not."""
        tensor = _plain(rows, name)
        if tensor.ndim != 2 or not tensor.numel():
            raise InputError(f"{name} must be rows (n, width); its shape is {tuple(tensor.shape)}.")
        tensor = tensor.to(self.dtype)
        check_finite(rows if isinstance(rows, Representations) else tensor, name)
        return tensor

    def _start(self, x: Tensor, y: Tensor) -> None:
        """Check that the method can learn from these sides, and keep their widths."""
        if len(x) < 2:
            raise InputError(f"{self.method} needs at least 2 rows to learn from; there is {len(x)}.")
        self.widths_ = x.shape[1], y.shape[1]
        if self.same_width and x.shape[1] != y.shape[1] and not self.pad:
            raise InputError(
                f"{self.method} needs one width on both sides, since {self.same_width}; these have {x.shape[1]} and "
                f"{y.shape[1]}. pad=True pads the narrower one with zeros; {listed(of_any_widths())} take both."
            )

    def _end(self, x: Tensor, report: dict[str, Any]) -> None:
        """Keep the report of a fit, with the error of the way there and back."""
        self.report_ = {"n": len(x), **report, "round_trip": math.nan}
        if not self.no_inverse:
            some = x[:_CHECKED]
            self.report_["round_trip"] = error_of(self.inverse(self(some)), some)["relative"]

    def _padded(self, *sides: Tensor) -> tuple[Tensor, ...]:
        """The sides, padded with zeros to the wider one's width where a method needs one width."""
        assert self.widths_ is not None
        if not self.same_width:
            return sides
        most = max(self.widths_)
        return tuple(torch.nn.functional.pad(side, (0, most - side.shape[1])) for side in sides)

    def _through(self, rows: Array, side: int, act: Any) -> Array:
        """Rows of the source (`side` 0) or the target (1) after `act`, as the kind of array that came in."""
        if self.widths_ is None:
            raise InputError("This aligner is not fitted yet; call fit(X, Y), or make one with ls.align(X, Y).")
        given = _plain(rows, "XY"[side])
        tensor = self._tensor(rows, "XY"[side])
        if tensor.shape[1] != self.widths_[side]:
            raise InputError(
                f"This aligner maps rows of width {self.widths_[0]} to width {self.widths_[1]}; "
                f"{'inverse' if side else 'it'} was given rows of width {tensor.shape[1]}."
            )
        if any(each.device != tensor.device for each in self.tensors_.values()):
            self.to(tensor.device)
        with torch.no_grad():
            mapped = act(*self._padded(tensor))[:, : self.widths_[1 - side]]
        mapped = mapped.to(given.dtype if given.dtype.is_floating_point else torch.float32)
        if (row := first_not_finite(mapped)) is not None:
            raise InputError(
                f"This aligner does not map row {row} of {'XY'[side]} to finite numbers: its values are too large for "
                f"{mapped.dtype}, or the aligner is damaged. Scale the rows, or fit the aligner again."
            )
        return mapped if isinstance(rows, Tensor | Representations) else mapped.cpu().numpy()


def _plain(rows: Array, name: str) -> Tensor:
    """Rows as a tensor; of representations those of their only layer."""
    if not isinstance(rows, Representations):
        return real_numbers(name, rows)
    if len(rows.layers) > 1:
        raise InputError(
            f"{name} has layers {rows.layers[0]}..{rows.layers[-1]}, and an aligner maps one layer; give it as "
            f"reps.select([{rows.layers[-1]}]), or as reps[{rows.layers[-1]}] with texts=reps."
        )
    return rows[rows.layers[0]]
