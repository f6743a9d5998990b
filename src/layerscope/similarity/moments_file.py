"""Moments as a folder: safetensors and JSON."""

from __future__ import annotations

import json
from pathlib import Path

from safetensors import safe_open
from safetensors.torch import save_file

from layerscope.errors import DataError
from layerscope.similarity.moments import Moments
from layerscope.store import atomic_folder, settled, write_json

FORMAT = 1


def write(moments: Moments, path: Path) -> Path:
    """Write the folder whole or not at all."""
    with atomic_folder(path, "moments.json") as folder:
        tensors = {f"shift.{i}": s for i, s in enumerate(moments.shift or ())}
        tensors |= {f"sum.{i}": s for i, s in enumerate(moments._sum)}
        for name in ("product", "cubic", "quartic"):
            tensors |= {f"{name}.{i}.{j}": v for (i, j), v in getattr(moments, f"_{name}").items()}
        save_file({k: v.cpu().contiguous() for k, v in tensors.items()}, folder / "moments.safetensors")
        card = {"format": FORMAT, "n": moments.n, "weight": moments.weight, "widths": list(moments.widths)}
        write_json(folder / "moments.json", card | {"debiased": moments.debiased, "exact": moments.exact})
    return path


def read(folder: Path) -> Moments:
    """The moments in a folder that `write` wrote."""
    folder = settled(folder)
    try:
        card = json.loads((folder / "moments.json").read_text(encoding="utf-8"))
        file = safe_open(folder / "moments.safetensors", framework="pt")
    except (OSError, ValueError) as error:
        raise DataError(f"{folder} holds no readable moments: {error}.") from error
    if card.get("format") != FORMAT:
        raise DataError(f"{folder} is in format {card.get('format')}; this version reads format {FORMAT}.")
    names = {name: tuple(map(int, name.split(".")[1:])) for name in file.keys()}  # noqa: SIM118
    pairs = [key for name, key in names.items() if name.startswith("product")]
    moments = Moments(card["widths"], pairs=pairs, exact=card["exact"], debiased=card["debiased"])  # type: ignore[arg-type]
    moments._n, moments.weight = card["n"], card["weight"]
    moments.shift = [file.get_tensor(f"shift.{i}") for i in range(len(moments.widths))]
    moments._sum = [file.get_tensor(f"sum.{i}") for i in range(len(moments.widths))]
    for name, key in names.items():
        kind = name.split(".")[0]
        if kind in ("product", "cubic", "quartic"):
            getattr(moments, f"_{kind}")[key] = file.get_tensor(name)
    return moments
