"""Keys and checksums: a key is a short name made of everything that determines a result."""

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
    """Return the one JSON text of a spec: sorted keys, no spaces, plain data only."""
    return json_text(spec, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def json_text(value: Any, **layout: Any) -> str:
    """Return a value as JSON text; numpy's scalars become plain numbers."""
    return json.dumps(value, default=_plain_number, **layout)


def _plain_number(value: Any) -> bool | int | float:
    """Return a scalar that `json` does not know as Python's number; raise TypeError for anything else."""
    # numpy's bool belongs to no abstract number class. Its dtype gives it away without numpy being imported here.
    if getattr(getattr(value, "dtype", None), "kind", "") == "b" and not value.shape:
        return bool(value)
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return float(value)
    raise TypeError(f"{type(value).__name__} is not plain data")


def digest(*parts: str | bytes) -> str:
    """Return a hash of the parts as 32 hex digits."""
    total = hashlib.sha256()
    # Each part comes with its length: else ("ab", "c") and ("a", "bc") would have one digest.
    for part in parts:
        data = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
        total.update(len(data).to_bytes(8, "little"))
        total.update(data)
    return total.hexdigest()[:32]


def key_of(kind: str, spec: Mapping[str, Any]) -> str:
    """Return the key of the artifact `kind` with this spec."""
    return digest(kind, canonical(spec))


def checksum(path: Path) -> str:
    """Return a fast checksum of a file, which shows damage (and is not meant against an attacker)."""
    total = xxhash.xxh3_128()
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            total.update(block)
    return total.hexdigest()
