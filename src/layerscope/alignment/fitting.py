"""Fitted aligners as an artifact: kept under what determines their sides, and fitted only where they are missing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from layerscope.alignment.aligner import Aligner
from layerscope.alignment.aligning import align_all, load_aligner
from layerscope.alignment.methods import make
from layerscope.engine import Job, folders_of
from layerscope.progress import progress
from layerscope.store import Artifact, produce_all

Place = tuple[int, int]  # a layer of the source, a layer of the target


class Rows(Protocol):
    """Rows of several layers: what determines them, and they themselves, read when they are first asked for."""

    def spec(self) -> dict[str, Any]:
        """What determines the rows of every layer, as JSON has it."""

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
        self.whole_options = make(method, seed, self.options).options  # those that were left out have their defaults
        self.finished: Callable[[float], None] | None = None  # is told when the aligners have been fitted

    def spec(self) -> dict[str, Any]:
        """The device changes the result only by rounding, so it is not part of it."""
        return {
            "method": self.method,
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
    """The aligners of several fittings, one list per fitting with one aligner per place.

    On other engines than `local` every fitting is a job of its own, called by its name; here a failure stops all.
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
