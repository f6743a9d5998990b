"""An aligner: a fitted map from one representation space to another. `fit` learns, a call maps, `inverse` maps back."""

from __future__ import annotations

import inspect
import math
from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from torch import Tensor

from layerscope.alignment.methods import of_any_widths
from layerscope.alignment.misses import error_of
from layerscope.alignment.texts import Texts, texts_of
from layerscope.drawing.words import listed
from layerscope.errors import InputError
from layerscope.extraction.finite import check_finite, first_not_finite
from layerscope.extraction.representations import Representations
from layerscope.store import json_text, write_bytes

Array = Any  # numpy or torch, (n, width), or representations of one layer
FORMAT, VERSION = "layerscope-aligner", 2  # of the file; raise the version when a map is stored otherwise
_CHECKED = 2048  # rows whose way there and back is measured after a fit


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

    # What a method writes.

    @abstractmethod
    def _fit(self, x: Tensor, y: Tensor, texts: np.ndarray) -> dict[str, Any]:
        """Learn `tensors_` from rows (n, d) and (n, d') of these texts; what there is to report."""

    @abstractmethod
    def _map(self, x: Tensor) -> Tensor: ...

    def _back(self, y: Tensor) -> Tensor:
        raise InputError(f"{self.method} has no inverse: {self.no_inverse}.")

    # What every method shares.

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
        source, target, named = self._pair(x, y, texts)
        self._start(source, target)
        wide = self._padded(source, target)
        self._end(source, self._fit(wide[0], wide[1], named))
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
        source, target, named = self._pair(x, y, texts)
        return self._errors(source, target, ci, named)

    def _errors(self, x: Tensor, y: Tensor, ci: float, texts: np.ndarray) -> dict[str, float]:
        return error_of(self(x), y, ci, texts)

    def save(self, path: str | Path) -> Path:
        """Write one safetensors file with the options and the report in it; `ls.load_aligner` reads it."""
        from safetensors.torch import save

        if self.widths_ is None:
            raise InputError("This aligner is not fitted yet; there is nothing to save.")
        about = {
            "format": FORMAT,
            "version": VERSION,
            "method": self.method,
            "options": self.options,
            "widths": self.widths_,
            "report": self.report_,
        }
        content = {name: tensor.detach().cpu().contiguous() for name, tensor in self.tensors_.items()}
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(target, save(content, {"layerscope": json_text(about)}))
        return target

    @property
    def options(self) -> dict[str, Any]:
        """What the constructor was given."""
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
        if isinstance(x, Representations) and isinstance(y, Representations) and (why := x.rows.difference(y.rows)):
            raise InputError(f"The rows of X and Y are not the same: {why}.")
        source, target = self._tensor(x, "X"), self._tensor(y, "Y")
        if len(source) != len(target):
            raise InputError(f"X has {len(source)} rows and Y {len(target)}; an aligner learns from pairs of rows.")
        return source, target.to(source.device), texts_of(texts, len(source), x, y)

    def _tensor(self, rows: Array, name: str) -> Tensor:
        tensor = _plain(rows, name)
        if tensor.ndim != 2 or not tensor.numel():
            raise InputError(f"{name} must be rows (n, width); its shape is {tuple(tensor.shape)}.")
        tensor = tensor.to(self.dtype)
        check_finite(rows if isinstance(rows, Representations) else tensor, name)
        return tensor

    def _start(self, x: Tensor, y: Tensor) -> None:
        if len(x) < 2:
            raise InputError(f"{self.method} needs at least 2 rows to learn from; there is {len(x)}.")
        self.widths_ = x.shape[1], y.shape[1]
        if self.same_width and x.shape[1] != y.shape[1] and not self.pad:
            raise InputError(
                f"{self.method} needs one width on both sides, since {self.same_width}; these have {x.shape[1]} and "
                f"{y.shape[1]}. pad=True pads the narrower one with zeros; {listed(of_any_widths())} take both."
            )

    def _end(self, x: Tensor, report: dict[str, Any]) -> None:
        self.report_ = {"n": len(x), **report, "round_trip": math.nan}
        if not self.no_inverse:
            some = x[:_CHECKED]
            self.report_["round_trip"] = error_of(self.inverse(self(some)), some)["relative"]

    def _padded(self, *sides: Tensor) -> tuple[Tensor, ...]:
        """The sides, with zeros up to the wider one's width where both must have one width."""
        assert self.widths_ is not None
        if not self.same_width:
            return sides
        most = max(self.widths_)
        return tuple(torch.nn.functional.pad(side, (0, most - side.shape[1])) for side in sides)

    def _through(self, rows: Array, side: int, act: Any) -> Array:
        if self.widths_ is None:
            raise InputError("This aligner is not fitted yet; call fit(X, Y), or make one with ls.align(X, Y).")
        given = _plain(rows, "XY"[side])
        tensor = self._tensor(rows, "XY"[side])
        if tensor.shape[1] != self.widths_[side]:
            raise InputError(
                f"This aligner maps rows of width {self.widths_[0]} to width {self.widths_[1]}; "
                f"{'inverse' if side else 'it'} was given rows of width {tensor.shape[1]}."
            )
        if any(own.device != tensor.device for own in self.tensors_.values()):
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
    """The rows as a tensor; of representations those of their only layer."""
    if not isinstance(rows, Representations):
        return torch.as_tensor(rows)
    if len(rows.layers) > 1:
        raise InputError(
            f"{name} has layers {rows.layers[0]}..{rows.layers[-1]}, and an aligner maps one layer; give it as "
            f"reps.select([{rows.layers[-1]}]), or as reps[{rows.layers[-1]}] with texts=reps."
        )
    return rows[rows.layers[0]]
