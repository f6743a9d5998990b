"""What maps that are trained share: standardised sides, the start, many networks side by side; and couplings."""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property, reduce
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.func import functional_call

from layerscope.alignment.affine import Ridge, strength_of
from layerscope.alignment.aligner import Aligner
from layerscope.alignment.training import Schedule, Trained, held_out, train
from layerscope.errors import InputError

STARTS = ("plain", "linear")


class Network(Aligner):
    """Sides are standardised feature by feature; AdamW, early stop on a held-out tenth, the best weights are kept.

    `start="linear"` puts the ridge solution before the network, which then starts from it; the report says so.
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
        start: str = "plain",
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
    def fit_many(cls, aligners: Sequence[Self], sides: Sequence[tuple[Any, Any]]) -> list[Self]:
        """Fit aligners of the same options on pairs of sides of the same shapes, side by side."""
        pairs = [a._pair(*pair) for a, pair in zip(aligners, sides, strict=True)]
        for aligner, pair in zip(aligners, pairs, strict=True):
            aligner._start(*pair)
        scaled = [a._scaled(*a._padded(*pair)) for a, pair in zip(aligners, pairs, strict=True)]
        first = aligners[0]
        x, y = (torch.stack([pair[side] for pair in scaled]) for side in (0, 1))
        schedule = Schedule(first.steps, first.batch, first.learning_rate, first.weight_decay, first.patience)
        fitted = train(first._network, x, y, schedule, first.seed, f"{first.method} aligners")
        for aligner, pair, trained in zip(aligners, pairs, fitted, strict=True):
            aligner._take(trained)
            aligner._end(pair[0], {"start": aligner.start, **trained.report})
        return list(aligners)

    def _fit(self, x: Tensor, y: Tensor) -> dict[str, Any]:
        sides = self._scaled(x, y)
        schedule = Schedule(self.steps, self.batch, self.learning_rate, self.weight_decay, self.patience)
        trained = train(self._network, sides[0][None], sides[1][None], schedule, self.seed, f"{self.method} aligner")[0]
        self._take(trained)
        return {"start": self.start, **trained.report}

    def _take(self, trained: Trained) -> None:
        self.tensors_ |= {f"network.{name}": p for name, p in trained.parameters.items()}

    def _scaled(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Both sides standardised (and X through the linear start), what that takes kept in `tensors_`."""
        self.tensors_ = {}
        for name, side in (("x", x), ("y", y)):
            spread = side.std(dim=0)
            self.tensors_[f"{name}_mean"] = side.mean(dim=0)
            self.tensors_[f"{name}_scale"] = torch.where(spread > 1e-6 * spread.max().clamp_min(1e-30), spread, 1.0)
        source, target = self._standard(x, "x"), self._standard(y, "y")
        learned = held_out(len(x), self.seed)[1].to(x.device)  # what stops the network has no say in its start either
        self._prepare(source[learned].double(), target[learned].double())
        return self._enter(source), target

    def _prepare(self, x: Tensor, y: Tensor) -> None:
        """Learn what stands before the network."""
        if self.start == "linear":
            self.tensors_["first"] = Ridge(x, y).weight(strength_of(x, y, self.seed)).float()

    def _start(self, x: Tensor, y: Tensor) -> None:
        super()._start(x, y)
        self.__dict__.pop("_frame", None)  # of an earlier fit, perhaps on other widths

    def _standard(self, rows: Tensor, side: str) -> Tensor:
        return (rows - self.tensors_[f"{side}_mean"]) / self.tensors_[f"{side}_scale"]

    def _restored(self, rows: Tensor, side: str) -> Tensor:
        return rows * self.tensors_[f"{side}_scale"] + self.tensors_[f"{side}_mean"]

    def _enter(self, x: Tensor) -> Tensor:
        return x @ self.tensors_["first"] if "first" in self.tensors_ else x

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
        return self._restored(self._run(self._enter(self._standard(x, "x"))), "y")


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
