"""`ls.align`: which methods there are, one pair at a time or many side by side, and aligners read from files."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from layerscope.alignment.aligner import FORMAT, Aligner, Array
from layerscope.alignment.canonical import CCA, SVCCA
from layerscope.alignment.floors import Identity, Mean
from layerscope.alignment.linear import Linear, Procrustes
from layerscope.alignment.networks import INN, MLP, Network
from layerscope.errors import InputError, check_seed, choose

METHODS: dict[str, type[Aligner]] = {
    kind.method: kind for kind in (Identity, Mean, Linear, Procrustes, CCA, SVCCA, INN, MLP)
}

_NARROW = 256  # width; benchmarks/alignment.py: 2.0 times as fast at 64, 1.8 at 192, 0.9 at 768 on two cores


def align(x: Array, y: Array, *, method: str = "linear", seed: int = 0, **options: Any) -> Aligner:
    """A map fitted from rows of `x` (n, d) to the same rows of `y` (n, d').

    Methods: identity, mean, linear, procrustes, cca, svcca, inn, mlp; options are those of the method's class, such as
    `strength=0` for plain least squares or `start="linear"` for the networks.
    """
    return _make(method, seed, options).fit(x, y)


def align_all(
    sides: Sequence[tuple[Array, Array]], *, method: str = "linear", seed: int = 0, **options: Any
) -> list[Aligner]:
    """One aligner a pair of sides; networks on sides of the same shapes side by side, where that is faster."""
    made = [_make(method, seed, options) for _ in sides]
    alike = len({(tuple(x.shape), tuple(y.shape)) for x, y in sides}) == 1
    if made and alike and isinstance(made[0], Network) and _pays(*sides[0]):
        networks = [a for a in made if isinstance(a, Network)]
        return list(type(networks[0]).fit_many(networks, sides))
    return [aligner.fit(x, y) for aligner, (x, y) in zip(made, sides, strict=True)]


def _pays(x: Array, y: Array) -> bool:
    """Whether networks of these sides are trained faster side by side: on a GPU, and on a CPU where they are small."""
    return getattr(x, "device", None) not in (None, torch.device("cpu")) or max(x.shape[1], y.shape[1]) <= _NARROW


def _make(method: str, seed: int, options: dict[str, Any]) -> Aligner:
    import inspect

    choose("alignment method", method, tuple(METHODS))
    kind = METHODS[method]
    allowed = [name for name in inspect.signature(kind).parameters if name != "seed"]
    if wrong := sorted(set(options) - set(allowed)):
        raise InputError(f"{method} has no option {', '.join(wrong)}; it has {', '.join(allowed)}.")
    return kind(seed=check_seed(seed), **options)


def load_aligner(path: str | Path) -> Aligner:
    """The aligner in a file that `aligner.save` wrote."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(path), framework="pt") as file:
            about = json.loads((file.metadata() or {}).get("layerscope", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    except FileNotFoundError:
        raise InputError(f"There is no file {path}.") from None
    except (SafetensorError, OSError, ValueError) as error:
        raise InputError(f"{path} is not an aligner: {error}.") from None
    if about.get("format") != FORMAT or about.get("method") not in METHODS:
        raise InputError(f"{path} is not an aligner that layerscope wrote; make one with aligner.save(path).")
    aligner = METHODS[about["method"]](**about["options"])
    aligner.tensors_, aligner.widths_, aligner.report_ = tensors, tuple(about["widths"]), about["report"]
    return aligner
