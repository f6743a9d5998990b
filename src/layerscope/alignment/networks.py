"""What maps that are trained share: standardised sides, the start, many networks side by side; and couplings."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property, reduce
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call

from layerscope.alignment.affine import Ridge, strength_of
from layerscope.alignment.aligner import Aligner
from layerscope.alignment.texts import Texts
from layerscope.alignment.training import Rows, Schedule, held_out, train
from layerscope.errors import InputError

STARTS = ("linear", "plain")


class Network(Aligner):
    """Sides are standardised feature by feature; AdamW, early stop on a held-out fifth of the texts.

    `start="linear"` adds the network to the solved linear map, to which it changes nothing until it is trained: what it
    learns is what the linear map leaves. Where that does not help on the held-out texts the linear map is the result.
    The map that the network is trained with is solved without those texts, the one that is kept with all of them.
    `start="plain"` is the network alone; the report says which start was used.
    """

    dtype = torch.float32

    def __init__(
        self,
        hidden: int | None = None,
        steps: int = 1500,
        batch: int = 256,
        learning_rate: float = 3e-3,
        weight_decay: float = 1e-2,
        patience: int = 12,
        start: str = "linear",
        *,
        seed: int = 0,
    ) -> None:
        super().__init__(seed=seed)
        for name, value in (("steps", steps), ("batch", batch), ("patience", patience), ("hidden", hidden or 1)):
            if value < 1:
                raise InputError(f"{name} is {value}; it must be at least 1.")
        if not (0 < learning_rate < math.inf and 0 <= weight_decay < math.inf):
            raise InputError(
                f"learning_rate is {learning_rate} and weight_decay {weight_decay}; they cannot be negative."
            )
        if start not in STARTS:
            raise InputError(f"start is {start!r}; allowed: {', '.join(STARTS)}.")
        self.hidden, self.steps, self.batch = hidden, steps, batch
        self.learning_rate, self.weight_decay, self.patience, self.start = learning_rate, weight_decay, patience, start

    @abstractmethod
    def _network(self) -> nn.Module:
        """The untrained network for the widths at hand."""

    @classmethod
    def fit_many(cls, aligners: Sequence[Self], sides: Sequence[tuple[Any, Any]], texts: Texts = None) -> list[Self]:
        """Fit aligners of the same options on pairs of sides of the same shapes and texts, side by side."""
        pairs = [a._pair(*pair, texts) for a, pair in zip(aligners, sides, strict=True)]
        for aligner, (x, y, _) in zip(aligners, pairs, strict=True):
            aligner._start(x, y)
        padded = [a._padded(x, y) for a, (x, y, _) in zip(aligners, pairs, strict=True)]
        reports = cls._learn(aligners, padded, pairs[0][2])
        for aligner, pair, report in zip(aligners, pairs, reports, strict=True):
            aligner._end(pair[0], report)
        return list(aligners)

    def _fit(self, x: Tensor, y: Tensor, texts: np.ndarray) -> dict[str, Any]:
        return type(self)._learn([self], [(x, y)], texts)[0]

    @classmethod
    def _learn(
        cls, aligners: Sequence[Self], sides: Sequence[tuple[Tensor, ...]], texts: np.ndarray
    ) -> list[dict[str, Any]]:
        """Train the networks of several aligners side by side; what there is to report of each."""
        scaled = [aligner._scaled(pair[0], pair[1], texts) for aligner, pair in zip(aligners, sides, strict=True)]
        first = aligners[0]
        x, y = (torch.stack([pair[side] for pair in scaled]) for side in (0, 1))
        weights = torch.stack([aligner._weights for aligner in aligners])
        schedule = Schedule(first.steps, first.batch, first.learning_rate, first.weight_decay, first.patience)
        title = f"{first.method} aligner{'s' * (len(aligners) > 1)}"
        fitted = train(first._network, Rows(x, y, texts, weights), schedule, first.seed, title)
        for aligner, pair, trained in zip(aligners, sides, fitted, strict=True):
            aligner.tensors_ |= {f"network.{name}": p for name, p in trained.parameters.items()}
            if aligner.start == "linear":  # now with the texts that said when to stop
                aligner._prepare(*pair)
        return [{"start": aligner.start, **trained.report} for aligner, trained in zip(aligners, fitted, strict=True)]

    def _scaled(self, x: Tensor, y: Tensor, texts: np.ndarray) -> tuple[Tensor, Tensor]:
        """What the network learns from: standardised sides with the linear start, what that takes in `tensors_`."""
        self.tensors_ = {}
        for name, side in (("x", x), ("y", y)):
            spread = side.std(dim=0)
            self.tensors_[f"{name}_mean"] = side.mean(dim=0)
            self.tensors_[f"{name}_scale"] = torch.where(spread > 1e-6 * spread.max().clamp_min(1e-30), spread, 1.0)
        self._strength = strength_of(x.double(), y.double(), self.seed, texts)
        learned = held_out(texts, self.seed)[1].to(x.device)  # what stops the network has no say in its start either
        self._prepare(x[learned], y[learned])
        return self._sides(self._standard(x, "x"), self._standard(y, "y"))

    @property
    def _weights(self) -> Tensor:
        """How much each standardised column of Y counts: as in the error, where large columns count for more."""
        squares = self.tensors_["y_scale"].square()
        return squares / squares.mean()

    def _prepare(self, x: Tensor, y: Tensor) -> None:
        """Learn what the network starts from."""
        if self.start == "linear":
            self.tensors_["first"] = self._solved(x, y).float()

    def _solved(self, x: Tensor, y: Tensor) -> Tensor:
        """The linear map, as the method `linear` solves it, between standardised columns."""
        weight = Ridge(x.double(), y.double()).weight(self._strength)
        source, target = (self.tensors_[f"{side}_scale"].double() for side in "xy")
        return source[:, None] * weight / target

    def _start(self, x: Tensor, y: Tensor) -> None:
        super()._start(x, y)
        self.__dict__.pop("_frame", None)  # of an earlier fit, perhaps on other widths

    def _standard(self, rows: Tensor, side: str) -> Tensor:
        return (rows - self.tensors_[f"{side}_mean"]) / self.tensors_[f"{side}_scale"]

    def _restored(self, rows: Tensor, side: str) -> Tensor:
        return rows * self.tensors_[f"{side}_scale"] + self.tensors_[f"{side}_mean"]

    @abstractmethod
    def _sides(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """What the network is given and what it should give, of standardised sides."""

    @abstractmethod
    def _through_network(self, x: Tensor) -> Tensor:
        """Standardised rows of the source as standardised rows of the target."""

    @cached_property
    def _frame(self) -> nn.Module:
        """The network's code; its weights, and what is fixed in it, are in `tensors_`."""
        with torch.device("meta"):
            return self._network()

    def _run(self, rows: Tensor, **options: Any) -> Tensor:
        start = len("network.")
        own = {name[start:]: p for name, p in self.tensors_.items() if name.startswith("network.")}
        return functional_call(self._frame, own, (rows,), options)

    def _map(self, x: Tensor) -> Tensor:
        return self._restored(self._through_network(self._standard(x, "x")), "y")


class Couplings(nn.Module):
    """Affine coupling blocks with fixed rotations between them."""

    turns: Tensor  # (blocks + 1, width, width)

    def __init__(self, width: int, count: int, hidden: int, clamp: float, seed: int) -> None:
        super().__init__()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a syntax that later Pythons will drop
            from FrEIA.modules import GLOWCouplingBlock
        generator = torch.Generator().manual_seed(seed)
        turns = [torch.eye(width)]
        turns += [torch.linalg.qr(torch.randn(width, width, generator=generator))[0] for _ in range(count - 1)]
        self.register_buffer("turns", torch.stack([*turns, reduce(torch.matmul, turns).T]))

        def subnet(inputs: int, outputs: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Linear(inputs, hidden), nn.SiLU(), nn.Linear(hidden, hidden), nn.SiLU(), silent(hidden, outputs)
            )

        self.blocks = nn.ModuleList(
            GLOWCouplingBlock([(width,)], subnet_constructor=subnet, clamp=clamp) for _ in range(count)
        )

    def forward(self, rows: Tensor, back: bool = False) -> Tensor:
        if back:
            rows = rows @ self.turns[-1].T
            for turn, block in zip(reversed(self.turns[:-1]), reversed(self.blocks), strict=True):
                rows = block((rows,), rev=True, jac=False)[0][0] @ turn.T
            return rows
        for turn, block in zip(self.turns[:-1], self.blocks, strict=True):
            rows = block((rows @ turn,), jac=False)[0][0]
        return rows @ self.turns[-1]


def silent(inputs: int, outputs: int) -> nn.Linear:
    """A layer that gives zeros until it is trained."""
    layer = nn.Linear(inputs, outputs)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


def random_couplings(width: int, hidden: int, seed: int) -> Couplings:
    """One coupling block with random weights, large enough to bend space: something to be found."""
    network = Couplings(width, 1, hidden, 2.0, seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for layer in network.modules():
            if isinstance(layer, nn.Linear):
                layer.weight.copy_(torch.randn(layer.weight.shape, generator=generator) / layer.in_features**0.5)
                layer.bias.copy_(0.1 * torch.randn(layer.bias.shape, generator=generator))
    return network
