"""Where a result comes from: models with hashes, data, settings, versions."""

from __future__ import annotations

import importlib.metadata
import platform
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from layerscope.version import __version__

_LIBRARIES = ("torch", "transformers", "tokenizers", "peft", "datasets", "numpy", "scipy", "scikit-learn")


def provenance_of(
    models: Iterable[Any] = (), data: Any = None, settings: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """What a result rests on. `models` are Models or what they have said of themselves, `data` is Examples likewise.

    Settings that are None were not given and are left out.
    """
    described = [dict(m) if isinstance(m, Mapping) else m.described() for m in models]
    about = {} if data is None else dict(data) if isinstance(data, Mapping) else data.described()
    given = {name: value for name, value in (settings or {}).items() if value is not None}
    return {"models": described, "data": about, "settings": given, "versions": versions()}


@cache
def _libraries() -> tuple[tuple[str, str], ...]:
    known = [("layerscope", __version__), ("python", platform.python_version())]
    for name in _LIBRARIES:
        try:
            known.append((name, importlib.metadata.version(name)))
        except importlib.metadata.PackageNotFoundError:
            continue
    return tuple(known)


def versions() -> dict[str, str]:
    """layerscope's version and those of the libraries under it."""
    return dict(_libraries())
