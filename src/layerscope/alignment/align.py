"""`ls.align`: aligners fitted to one pair of sides or to many side by side, read from files, or kept in the store.

A saved aligner is read only where its metadata fit its tensors, these are finite, and it maps rows of its width. In the
store, fitted aligners are artifacts under all that determines their sides, so they are fitted once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Protocol

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from layerscope.alignment.aligner import FORMAT, VERSION, Aligner, Array, Texts, make, options_of
from layerscope.alignment.neural_maps import Network
from layerscope.engine import Job, folders_of
from layerscope.errors import InputError, LayerscopeError, check_seed, first_line
from layerscope.progress import progress
from layerscope.registry import ALIGNERS
from layerscope.store import Artifact, Saved, TensorFile, open_tensors, parse_json, produce_all, shaped

_WIDEST = 1 << 20
_SCHEDULE = ("steps", "batch", "patience", "seed")  # options that decide no shape


class AlignerCard(Saved):
    """The metadata in the header of an aligner's file."""

    version: int = Field(default=1, ge=1)
    method: str
    options: dict[str, Any]
    widths: list[Annotated[int, Field(ge=1, le=_WIDEST)]] = Field(min_length=2, max_length=2)
    report: dict[str, Any]


def read_aligner(path: Path) -> Aligner:
    """The aligner in a file that `aligner.save` wrote."""
    if not path.exists():
        raise InputError(f"There is no file {path}.")
    file = open_tensors(path, error=InputError, way_out="it is not an aligner; make one with aligner.save(path)")
    try:
        header = parse_json(file.metadata.get("layerscope", "{}"))
        is_ours = isinstance(header, dict) and header.get("format") == FORMAT and str(header.get("method")) in ALIGNERS
        card = shaped(header, AlignerCard) if is_ours else None
        if card is not None:
            _check_version(card, path)
            _check_options(card, file)
            return _restored(card, file)
    except (ValueError, TypeError, RuntimeError, KeyError, IndexError, AttributeError, OverflowError) as error:
        if isinstance(error, LayerscopeError) and str(path) in str(error):
            raise
        raise InputError(f"The aligner in {path} is damaged ({first_line(error)}); fit and save it again.") from error
    raise InputError(f"{path} is not an aligner that layerscope wrote; make one with aligner.save(path).")


def _check_version(card: AlignerCard, path: Path) -> None:
    """Raise InputError where the file is of a format that this layerscope does not read."""
    if card.version > VERSION:
        raise InputError(
            f"{path} was written in version {card.version} of the format, and this layerscope reads up to {VERSION}; "
            "update layerscope, or fit the aligner again."
        )
    if card.version < 2 and card.method == "mlp" and card.options.get("start") == "linear":
        raise InputError(f"{path} holds an mlp that an earlier layerscope started differently; fit it again.")


def _check_options(card: AlignerCard, file: TensorFile) -> None:
    """Raise ValueError where an option asks for a larger network than the tensors are of, before it is built."""
    check_seed(card.options.get("seed", 0))
    most = max([len(file.names), *card.widths, *(length for name in file.names for length in file.shape(name))])
    for name, value in card.options.items():
        if isinstance(value, int) and name not in _SCHEDULE and value > most:
            raise ValueError(f"{name} is {value}, and its tensors are smaller")


def _restored(card: AlignerCard, file: TensorFile) -> Aligner:
    """The aligner of a file, which has mapped a row of zeros there and back; raises ValueError where it cannot."""
    allowed = {"seed", *options_of(card.method)}  # version 0.1 wrote `pad` for every method
    aligner = ALIGNERS[card.method](**{name: value for name, value in card.options.items() if name in allowed})
    for name in file.names:
        if not file.dtype(name).startswith(("F", "BF")):
            raise ValueError(f"{name} holds {file.dtype(name)}")
        file.finite(name, name)
    aligner.tensors_ = {name: file.tensor(name) for name in file.names}
    aligner.widths_, aligner.report_ = (card.widths[0], card.widths[1]), card.report
    rows = torch.zeros(1, card.widths[0], dtype=aligner.dtype)
    mapped = aligner(rows)
    back = rows if aligner.no_inverse else aligner.inverse(mapped)
    if mapped.shape != (1, card.widths[1]) or not bool(torch.isfinite(mapped).all() and torch.isfinite(back).all()):
        raise ValueError(f"it does not map rows of width {card.widths[0]} to width {card.widths[1]}")
    return aligner


_NARROW = 256  # width; benchmarks/alignment.py: 2.0 times as fast at 64, 1.8 at 192, 0.9 at 768 on two cores


def align(x: Array, y: Array, *, method: str = "linear", seed: int = 0, texts: Texts = None, **options: Any) -> Aligner:
    """Fit a map from rows of one space to the same rows of another.

    Args:
        x: Rows of the source (n, d), numpy or torch, or representations of one layer.
        y: The same rows of the target (n, d').
        method: What kind of map, such as `procrustes`, `linear`, `cca` or `inn`; an unknown name is answered with all
            that there are.
        seed: Decides folds and networks.
        texts: The text of each row, or the representations that the rows are of: rows of one text, such as its words,
            are held out together. Every row is a text of its own if not given, unless representations tell.
        **options: Those of the method's class, such as `strength=0` for plain least squares or `start="plain"` for
            networks that do not start from the linear map.

    Returns:
        The fitted aligner: call it on rows of the source.

    Example:
        >>> import numpy as np
        >>> import layerscope as ls
        >>> generator = np.random.default_rng(0)
        >>> x = generator.normal(size=(200, 6))
        >>> y = x @ generator.normal(size=(6, 4)) + 1
        >>> aligner = ls.align(x, y)
        >>> aligner
        Linear(6 -> 4, 200 rows)
        >>> aligner(x).shape
        (200, 4)
        >>> bool(aligner.error(x, y)["relative"] < 1e-6)
        True
    """
    return make(method, seed, options).fit(x, y, texts=texts)


def align_all(
    sides: Sequence[tuple[Array, Array]],
    *,
    method: str = "linear",
    seed: int = 0,
    texts: Texts = None,
    **options: Any,
) -> list[Aligner]:
    """One fitted aligner per pair of sides; networks are trained side by side where that is possible and faster."""
    aligners = [make(method, seed, options) for _ in sides]
    alike = len({(tuple(x.shape), tuple(y.shape)) for x, y in sides}) == 1
    if aligners and alike and isinstance(aligners[0], Network) and _faster_together(*sides[0]):
        networks = [aligner for aligner in aligners if isinstance(aligner, Network)]
        return list(type(networks[0]).fit_many(networks, sides, texts))
    return [aligner.fit(x, y, texts=texts) for aligner, (x, y) in zip(aligners, sides, strict=True)]


def _faster_together(x: Array, y: Array) -> bool:
    """Whether networks of these sides are trained faster side by side: on a GPU, and on a CPU where they are small."""
    return getattr(x, "device", None) not in (None, torch.device("cpu")) or max(x.shape[1], y.shape[1]) <= _NARROW


def load_aligner(path: str | Path) -> Aligner:
    """Read an aligner from a file that `aligner.save` wrote.

    Args:
        path: The safetensors file.

    Returns:
        The aligner as it was saved, fitted.

    Example:
        >>> import tempfile
        >>> import numpy as np
        >>> import layerscope as ls
        >>> x = np.random.default_rng(0).normal(size=(50, 3))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     file = ls.align(x, x[:, ::-1].copy()).save(f"{folder}/map.safetensors")
        ...     print(ls.load_aligner(file))
        Linear(3 -> 3, 50 rows)
    """
    return read_aligner(Path(path))


Place = tuple[int, int]  # a layer of the source, a layer of the target


class Rows(Protocol):
    """Rows of several layers, read when they are first asked for; their spec is known before."""

    def spec(self) -> dict[str, Any]:
        """All that determines the rows of every layer, for the key of an artifact."""

    def __getitem__(self, layer: int) -> Tensor: ...

    @property
    def texts(self) -> np.ndarray:
        """The text of every row."""


class Fitting(Artifact):
    """The aligners of one method from some layers of a source to layers of a target, fitted side by side."""

    kind = "aligners"
    version = 4

    def __init__(
        self,
        source: Rows,
        target: Rows,
        places: Sequence[Place],
        method: str,
        seed: int = 0,
        options: Mapping[str, Any] | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.source, self.target, self.places = source, target, list(places)
        self.method, self.seed, self.options, self.device = method, seed, dict(options or {}), device
        unfitted = make(method, seed, self.options)
        self.name, self.whole_options = unfitted.method, unfitted.options  # with the defaults of those left out
        self.finished: Callable[[float], None] | None = None  # called with 1 once the aligners are fitted

    def spec(self) -> dict[str, Any]:
        """All that determines the aligners; the device is not part of it, since it changes them only by rounding."""
        return {
            "method": self.name,
            "options": self.whole_options,
            "source": self.source.spec(),
            "target": self.target.spec(),
            "places": [list(place) for place in self.places],
        }

    def build(self, folder: Path) -> None:
        pairs = [(self.source[a].to(self.device), self.target[b].to(self.device)) for a, b in self.places]
        aligners = align_all(pairs, method=self.method, seed=self.seed, texts=self.source.texts, **self.options)
        for k, aligner in enumerate(aligners):
            aligner.save(folder / f"{k:04}.safetensors")
        if self.finished is not None:
            self.finished(1)


def fit_all(
    fittings: Sequence[Fitting], title: str, engine: str = "local", names: Sequence[str] = ()
) -> list[list[Aligner]]:
    """The aligners of several fittings: one list per fitting, with one aligner per place.

    On other engines than `local` every fitting is a job under its name in `names`; on `local` a failure stops all.
    """
    if not fittings:
        return []
    if engine == "local":
        with progress(title, len(fittings), "fits") as advance:
            for fitting in fittings:
                fitting.finished = advance
            folders = produce_all(fittings)
    else:
        gpus = float(str(fittings[0].device).startswith("cuda"))
        jobs = [Job(fitting, name, gpus=gpus) for fitting, name in zip(fittings, names, strict=True)]
        folders = folders_of(jobs, engine, "fits")
    return [[load_aligner(path) for path in sorted(folder.glob("*.safetensors"))] for folder in folders]
