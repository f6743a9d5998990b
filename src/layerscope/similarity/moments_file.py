"""Moments as a folder: safetensors and JSON."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import Field, FiniteFloat
from safetensors.torch import save_file

from layerscope.errors import DataError
from layerscope.similarity.moments import Moments
from layerscope.store import Saved, atomic_folder, inside, open_tensors, read_object, settled, shaped, write_json

FORMAT = 1
_CARD, _TENSORS = "moments.json", "moments.safetensors"
_AGAIN = "make them again"
_PARTS = {"shift": 1, "sum": 1, "product": 2, "cubic": 2, "quartic": 2}  # tensors, and how many views each is of


def write(moments: Moments, path: Path) -> Path:
    """Write the folder whole or not at all."""
    with atomic_folder(path, _CARD) as folder:
        tensors = {f"shift.{i}": s for i, s in enumerate(moments.shift or ())}
        tensors |= {f"sum.{i}": s for i, s in enumerate(moments._sum)}
        for name in ("product", "cubic", "quartic"):
            tensors |= {f"{name}.{i}.{j}": v for (i, j), v in getattr(moments, f"_{name}").items()}
        save_file({k: v.cpu().contiguous() for k, v in tensors.items()}, folder / _TENSORS)
        card = {"format": FORMAT, "n": moments.n, "weight": moments.weight, "widths": list(moments.widths)}
        write_json(folder / _CARD, card | {"debiased": moments.debiased, "exact": moments.exact})
    return path


class MomentsCard(Saved):
    """`moments.json`."""

    n: int = Field(ge=0, lt=1 << 60)
    weight: FiniteFloat = Field(ge=0)
    widths: list[Annotated[int, Field(ge=1, lt=1 << 31)]] = Field(min_length=1, max_length=1_000_000)
    debiased: bool
    exact: bool


def read(folder: Path) -> Moments:
    """The moments in a folder that `write` wrote."""
    folder = settled(folder)
    if not (folder / _CARD).exists():
        raise DataError(f"{folder} holds no readable moments: there is no {_CARD} in it.")
    raw = read_object(inside(folder, _CARD), way_out=_AGAIN)
    if raw.get("format") != FORMAT:
        raise DataError(f"{folder} is in format {str(raw.get('format'))[:40]}; this version reads format {FORMAT}.")
    try:
        card = shaped(raw, MomentsCard)
        file = open_tensors(inside(folder, _TENSORS), way_out=_AGAIN)
        names = {name: _key(name, len(card.widths)) for name in file.names}
    except DataError:
        raise
    except ValueError as error:
        raise DataError(f"The moments in {folder} are damaged ({error}); {_AGAIN}.") from error
    for name, key in names.items():
        file.require({name: _shape(name, [card.widths[i] for i in key])})
        if file.dtype(name) != "F64":
            raise DataError(f"The moments in {folder} are damaged ({name} holds {file.dtype(name)}); {_AGAIN}.")
        file.finite(name, name)
    wanted = {f"{kind}.{i}": (width,) for kind in ("shift", "sum") for i, width in enumerate(card.widths)}
    file.require({**wanted, **{f"product.{i}.{i}": (width, width) for i, width in enumerate(card.widths)}})
    pairs = [key for name, key in names.items() if name.startswith("product")]
    moments = Moments(card.widths, pairs=pairs, exact=card.exact, debiased=card.debiased)  # type: ignore[arg-type]
    moments._n, moments.weight = card.n, card.weight
    moments.shift = [file.tensor(f"shift.{i}") for i in range(len(moments.widths))]
    moments._sum = [file.tensor(f"sum.{i}") for i in range(len(moments.widths))]
    for kind in ("product", "cubic", "quartic"):
        sums = getattr(moments, f"_{kind}")
        if sums.keys() != {key for name, key in names.items() if name.startswith(f"{kind}.")}:
            raise DataError(
                f"The moments in {folder} are damaged (its {kind} sums are not those of its pairs); {_AGAIN}."
            )
        sums.update({key: file.tensor(f"{kind}.{key[0]}.{key[1]}") for key in sums})
    return moments


def _key(name: str, views: int) -> tuple[int, ...]:
    """The views that a tensor is of."""
    kind, *parts = name.split(".")
    if _PARTS.get(kind) != len(parts) or not all(p.isdecimal() and p.isascii() and len(p) < 8 for p in parts):
        raise ValueError(f"it holds a tensor {name[:40]!a}")
    key = tuple(map(int, parts))
    if any(i >= views for i in key):
        raise ValueError(f"{name} is of a view that there is not")
    return key


def _shape(name: str, widths: list[int]) -> tuple[int, ...]:
    kind = name.split(".", maxsplit=1)[0]
    return () if kind == "quartic" else (widths[-1],) if kind == "cubic" else tuple(widths)
