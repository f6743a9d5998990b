"""Train the networks of many aligners side by side: parameters stacked, one step for all, each as if alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from layerscope.alignment.texts import folds
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
    """How long, how fast, and when to stop."""

    steps: int
    batch: int
    learning_rate: float
    weight_decay: float
    patience: int  # looks without a better one


@dataclass
class Trained:
    """What came out for one pair of sides: the best weights with what is fixed, and how it went."""

    parameters: Parameters
    report: dict[str, Any]


@dataclass(frozen=True)
class Rows:
    """What networks learn from: sides (pairs, n, d), the text of each row, how much each column of y counts."""

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
    watched = (held if len(held) else rest).to(x.device)  # with so few rows all are learned from, and watched

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
    """The rows of a fifth of the texts, which say when to stop, and the others; all are others where rows are few."""
    if len(texts) < _LEAST_ROWS:
        return torch.arange(0), torch.arange(len(texts))
    held, rest = folds(texts, _FOLDS, seed)[0]
    return torch.from_numpy(held), torch.from_numpy(rest)


def _gained(gains: Tensor, texts: np.ndarray) -> Tensor:
    """(pairs,) Whether the gains of rows (pairs, rows) are more than chance: above two standard errors over texts."""
    _, numbers = np.unique(texts, return_inverse=True)
    text = torch.from_numpy(numbers.reshape(-1)).to(gains.device)
    count = int(text.max()) + 1
    sums = torch.zeros(len(gains), count, device=gains.device, dtype=gains.dtype).index_add_(1, text, gains)
    if count < 2:
        return sums[:, 0] > 0
    return sums.mean(dim=1) > _SURE * sums.std(dim=1) / count**0.5


def _clip(parameters: Parameters) -> None:
    """Each network's gradient to a norm of at most `_CLIP`, by itself."""
    gradients = [p.grad for p in parameters.values() if p.grad is not None]
    norm = sum(g.flatten(1).square().sum(dim=1) for g in gradients)
    factor = (_CLIP / torch.as_tensor(norm).sqrt().clamp_min(1e-12)).clamp_max(1.0)
    for gradient in gradients:
        gradient.mul_(factor.view(-1, *[1] * (gradient.ndim - 1)))
