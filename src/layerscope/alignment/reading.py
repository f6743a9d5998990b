"""Reading a saved aligner: what it says of itself, whether its tensors are finite, and whether it maps at all."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field

from layerscope.alignment.aligner import FORMAT, VERSION, Aligner
from layerscope.alignment.methods import METHODS, options_of
from layerscope.errors import InputError, LayerscopeError, check_seed, first_line
from layerscope.store import Saved, TensorFile, open_tensors, parse_json, shaped

_WIDEST = 1 << 20
_SCHEDULE = ("steps", "batch", "patience", "seed")  # options that decide no shape


class AlignerCard(Saved):
    """What stands in the header of an aligner's file."""

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
        about = parse_json(file.metadata.get("layerscope", "{}"))
        is_ours = isinstance(about, dict) and about.get("format") == FORMAT and str(about.get("method")) in METHODS
        card = shaped(about, AlignerCard) if is_ours else None
        if card is not None:
            _check_version(card, path)
            _check_options(card, file)
            return _opened(card, file)
    except (ValueError, TypeError, RuntimeError, KeyError, IndexError, AttributeError, OverflowError) as error:
        if isinstance(error, LayerscopeError) and str(path) in str(error):
            raise
        raise InputError(f"The aligner in {path} is damaged ({first_line(error)}); fit and save it again.") from error
    raise InputError(f"{path} is not an aligner that layerscope wrote; make one with aligner.save(path).")


def _check_version(card: AlignerCard, path: Path) -> None:
    """Raise where another version of layerscope stored the map in another way."""
    if card.version > VERSION:
        raise InputError(
            f"{path} was written in version {card.version} of the format, and this layerscope reads up to {VERSION}; "
            "update layerscope, or fit the aligner again."
        )
    if card.version < 2 and card.method == "mlp" and card.options.get("start") == "linear":
        raise InputError(f"{path} holds an mlp that an earlier layerscope started differently; fit it again.")


def _check_options(card: AlignerCard, file: TensorFile) -> None:
    """Raise where an option asks for a network that the tensors cannot be of, before it is built."""
    check_seed(card.options.get("seed", 0))
    most = max([len(file.names), *card.widths, *(length for name in file.names for length in file.shape(name))])
    for name, value in card.options.items():
        if isinstance(value, int) and name not in _SCHEDULE and value > most:
            raise ValueError(f"{name} is {value}, and its tensors are smaller")


def _opened(card: AlignerCard, file: TensorFile) -> Aligner:
    known = {"seed", *options_of(card.method)}  # version 0.1 wrote `pad` for every method
    aligner = METHODS[card.method](**{name: value for name, value in card.options.items() if name in known})
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
