"""Keys: a short name for everything that determines a result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from numbers import Integral, Real
from pathlib import Path
from typing import Any

import xxhash

_BLOCK = 1 << 22


def canonical(spec: Mapping[str, Any]) -> str:
    """The one JSON text of a spec: sorted keys, no spaces, nothing that is not plain data."""
    return json_text(spec, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def json_text(value: Any, **layout: Any) -> str:
    """The value as JSON; a number of numpy's is the number that it is."""
    return json.dumps(value, default=_plain_number, **layout)


def _plain_number(value: Any) -> bool | int | float:
    if getattr(getattr(value, "dtype", None), "kind", "") == "b" and not value.shape:  # numpy need not be loaded
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise TypeError(f"{type(value).__name__} is not plain data")


def digest(*parts: str | bytes) -> str:
    """A hex name of 32 digits for the parts, each with its length, so that no two lists collide by joining."""
    total = hashlib.sha256()
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()[:32]


def key_of(kind: str, spec: Mapping[str, Any]) -> str:
    """The key of the artifact `kind` with this spec."""
    return digest(kind, canonical(spec))


def checksum(path: Path) -> str:
    """A fast checksum of a file, against damage (not against an attacker)."""
    total = xxhash.xxh3_128()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            total.update(block)
    return total.hexdigest()
