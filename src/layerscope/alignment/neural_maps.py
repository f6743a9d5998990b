"""Maps that are trained: the base of network aligners, their training, and the coupling blocks of invertible ones.

The networks of many aligners are trained side by side: their parameters are stacked and take every step together, and
each comes out as it would alone.
"""

from __future__ import annotations

import math
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from layerscope.alignment.aligner import Aligner, Texts, folds
from layerscope.alignment.linear_maps import Ridge, strength_of
from layerscope.errors import InputError
from layerscope.progress import progress

Parameters = dict[str, Tensor]
_LOOK = 25  # steps between two looks at the held-out rows
_CLIP = 1.0
_FOLDS = 5  # the first of which says when to stop
_LEAST_ROWS = 10  # with fewer all are learned from
_SURE = 2.0  # standard errors over texts that a training must gain on held-out rows, or the start is kept


@dataclass(frozen=True)
class Schedule:
    """The options of a training: its length, its learning rate, and when it stops."""

    steps: int
    batch: int
    learning_rate: float
    weight_decay: float
    patience: int  # looks at the held-out rows without a lower error


@dataclass
class Trained:
    """The result for one pair of sides: the best weights and the buffers, and the report of the training."""

    parameters: Parameters
    report: dict[str, Any]


@dataclass(frozen=True)
class Rows:
    """The rows that networks learn from: sides (pairs, n, d), the text of each row, the weight of each column of y."""

    x: Tensor
    y: Tensor
    texts: np.ndarray  # (n,)
    weights: Tensor  # (pairs, d') of mean 1


def train(make: Callable[[], nn.Module], given: Rows, schedule: Schedule, seed: int, title: str) -> list[Trained]:
    """Fit y[k] = network_k(x[k]) for every k; texts that are held out say when to stop.

    Every network starts from the same weights and sees the same order of rows, so each comes out as it would alone. One
    that does not gain on the held-out texts, beyond what chance would, is left as it started.
    """
    x, y = given.x, given.y
    pairs = len(x)
    # The seed decides the weights, and the caller's own random numbers go on as if nothing had been drawn.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = make().to(x.device)
    buffers = dict(network.named_buffers())
    stacked = {
        name: p.detach().expand(pairs, *p.shape).clone().requires_grad_(True) for name, p in network.named_parameters()
    }

    def run(parameters: Parameters, rows: Tensor) -> Tensor:
        return functional_call(network, (parameters, buffers), (rows,))

    def alone(parameters: Parameters, rows: Tensor) -> Tensor:  # saves what vmap costs
        return run({name: p[0] for name, p in parameters.items()}, rows[0])[None]

    forward = vmap(run) if pairs > 1 else alone
    held, rest = held_out(given.texts, seed)
    watched = (held if len(held) else rest).to(x.device)  # where none are held out, those that are learned from

    def misses(rows: Tensor) -> Tensor:  # (pairs, rows)
        errors = (forward(stacked, x[:, rows]) - y[:, rows]).square()
        return (errors * given.weights[:, None]).mean(dim=2)

    generator = torch.Generator().manual_seed(seed + 1)
    optimizer = torch.optim.AdamW(
        list(stacked.values()), schedule.learning_rate, weight_decay=schedule.weight_decay, fused=True
    )
    plan = torch.optim.lr_scheduler.OneCycleLR(optimizer, schedule.learning_rate, schedule.steps, pct_start=0.1)
    start = {name: p.detach().clone() for name, p in stacked.items()}
    best = dict(start)

    def watch() -> Tensor:
        with torch.no_grad():
            return misses(watched)

    first = watch()  # of the start, which may be the best there is
    least, lowest = first.mean(dim=1), first
    waited, reached = torch.zeros(pairs, device=x.device), torch.zeros(pairs, device=x.device)
    with progress(title, schedule.steps, "steps") as advance:
        for step in range(1, schedule.steps + 1):
            rows = rest[torch.randint(len(rest), (min(schedule.batch, len(rest)),), generator=generator)].to(x.device)
            optimizer.zero_grad(set_to_none=True)
            misses(rows).mean(dim=1).sum().backward()
            _clip(stacked)
            optimizer.step()
            plan.step()
            advance(1)
            if step % _LOOK and step < schedule.steps:
                continue
            looked = watch()
            seen = looked.mean(dim=1)
            better = (seen < least) & (waited < schedule.patience)
            lowest = torch.where(better[:, None], looked, lowest)
            least, reached = torch.where(better, seen, least), torch.where(better, float(step), reached)
            waited = torch.where(better, 0.0, waited + 1)
            for name, p in stacked.items():
                best[name] = torch.where(better.view(-1, *[1] * (p.ndim - 1)), p.detach(), best[name])
            if bool((waited >= schedule.patience).all()):
                break
    if not bool(seen.isfinite().all()):
        raise InputError(f"The loss of {title} is not a finite number; lower the learning rate.")
    # The best of many looks is better than the start by chance alone, so a small gain does not count.
    gained = _gained(first - lowest, given.texts[watched.cpu().numpy()])
    kept = {name: torch.where(gained.view(-1, *[1] * (p.ndim - 1)), p, start[name]) for name, p in best.items()}
    return [
        Trained(
            {**{name: p[k].clone() for name, p in kept.items()}, **buffers},
            {
                "steps": int(reached[k]) if gained[k] else 0,
                "held_out": float(least[k] if gained[k] else first[k].mean()),
                "held_out_rows": len(held),
            },
        )
        for k in range(pairs)
    ]


def held_out(texts: np.ndarray, seed: int) -> tuple[Tensor, Tensor]:
    """The rows of a fifth of the texts, by which a training stops, and the others; with few rows none are held out."""
    if len(texts) < _LEAST_ROWS:
        return torch.arange(0), torch.arange(len(texts))
    held, rest = folds(texts, _FOLDS, seed)[0]
    return torch.from_numpy(held), torch.from_numpy(rest)


def _gained(gains: Tensor, texts: np.ndarray) -> Tensor:
    """(pairs,) Whether the gains of rows (pairs, rows) are more than chance, that is above two standard errors."""
    _, numbers = np.unique(texts, return_inverse=True)
    text = torch.from_numpy(numbers.reshape(-1)).to(gains.device)
    count = int(text.max()) + 1
    sums = torch.zeros(len(gains), count, device=gains.device, dtype=gains.dtype).index_add_(1, text, gains)
    if count < 2:
        return sums[:, 0] > 0
    return sums.mean(dim=1) > _SURE * sums.std(dim=1) / count**0.5


def _clip(parameters: Parameters) -> None:
    """Clip the gradient of each network by itself, to a norm of at most `_CLIP`."""
    gradients = [p.grad for p in parameters.values() if p.grad is not None]
    norm = sum(g.flatten(1).square().sum(dim=1) for g in gradients)
    factor = (_CLIP / torch.as_tensor(norm).sqrt().clamp_min(1e-12)).clamp_max(1.0)
    for gradient in gradients:
        gradient.mul_(factor.view(-1, *[1] * (gradient.ndim - 1)))


STARTS = ("linear", "plain")


class Network(Aligner):
    """The base of aligners that are networks, trained by AdamW and stopped by a held-out fifth of the texts.

    Sides are standardised feature by feature.

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
        """Train the networks of several aligners side by side, and return the report of each."""
        scaled = [aligner._scaled(pair[0], pair[1], texts) for aligner, pair in zip(aligners, sides, strict=True)]
        first = aligners[0]
        x, y = (torch.stack([pair[side] for pair in scaled]) for side in (0, 1))
        weights = torch.stack([aligner._weights for aligner in aligners])
        schedule = Schedule(first.steps, first.batch, first.learning_rate, first.weight_decay, first.patience)
        title = f"{first.method} aligner{'s' * (len(aligners) > 1)}"
        fitted = train(first._network, Rows(x, y, texts, weights), schedule, first.seed, title)
        for aligner, pair, trained in zip(aligners, sides, fitted, strict=True):
            aligner.tensors_ |= {f"network.{name}": p for name, p in trained.parameters.items()}
            if aligner.start == "linear":  # solved again, now with the texts that were held out
                aligner._prepare(*pair)
        return [{"start": aligner.start, **trained.report} for aligner, trained in zip(aligners, fitted, strict=True)]

    def _scaled(self, x: Tensor, y: Tensor, texts: np.ndarray) -> tuple[Tensor, Tensor]:
        """The sides that the network learns from; the means, scales and the start that they need go to `tensors_`."""
        self.tensors_ = {}
        for name, side in (("x", x), ("y", y)):
            spread = side.std(dim=0)
            self.tensors_[f"{name}_mean"] = side.mean(dim=0)
            self.tensors_[f"{name}_scale"] = torch.where(spread > 1e-6 * spread.max().clamp_min(1e-30), spread, 1.0)
        self._strength = strength_of(x.double(), y.double(), self.seed, texts)
        learned = held_out(texts, self.seed)[1].to(x.device)  # held-out texts must not shape the start either
        self._prepare(x[learned], y[learned])
        return self._sides(self._standard(x, "x"), self._standard(y, "y"))

    @property
    def _weights(self) -> Tensor:
        """How much each standardised column of Y counts: as in the error, where large columns count for more."""
        squares = self.tensors_["y_scale"].square()
        return squares / squares.mean()

    def _prepare(self, x: Tensor, y: Tensor) -> None:
        """Solve the linear map that the network starts from, where it has such a start."""
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
        """Rows of a side (`x` or `y`), standardised."""
        return (rows - self.tensors_[f"{side}_mean"]) / self.tensors_[f"{side}_scale"]

    def _restored(self, rows: Tensor, side: str) -> Tensor:
        """Standardised rows of a side (`x` or `y`) on its own scale."""
        return rows * self.tensors_[f"{side}_scale"] + self.tensors_[f"{side}_mean"]

    @abstractmethod
    def _sides(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """The input and the wanted output of the network, of standardised sides."""

    @abstractmethod
    def _through_network(self, x: Tensor) -> Tensor:
        """Standardised rows of the source as standardised rows of the target."""

    @cached_property
    def _frame(self) -> nn.Module:
        """The network without numbers; its weights and buffers are in `tensors_`."""
        with torch.device("meta"):
            return self._network()

    def _run(self, rows: Tensor, **options: Any) -> Tensor:
        """The output of the network for rows."""
        prefix = "network."
        weights = {name[len(prefix) :]: p for name, p in self.tensors_.items() if name.startswith(prefix)}
        return functional_call(self._frame, weights, (rows,), options)

    def _map(self, x: Tensor) -> Tensor:
        return self._restored(self._through_network(self._standard(x, "x")), "y")


class Couplings(nn.Module):
    """Affine coupling blocks with fixed rotations between them."""

    turns: Tensor  # (blocks + 1, width, width)

    def __init__(self, width: int, count: int, hidden: int, clamp: float, seed: int) -> None:
        super().__init__()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it uses a syntax that later Pythons will drop
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
