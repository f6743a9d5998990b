"""Train the networks of many aligners side by side: parameters stacked, one step for all, each as if alone."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, vmap

from layerscope.errors import InputError
from layerscope.progress import progress

Parameters = dict[str, Tensor]
_LOOK = 25  # steps between two looks at the held-out rows
_CLIP = 1.0
_HELD = 0.1


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


def train(
    make: Callable[[], nn.Module], x: Tensor, y: Tensor, schedule: Schedule, seed: int, title: str
) -> list[Trained]:
    """Fit y[k] = network_k(x[k]) for every k of (pairs, n, d); rows that are held out say when to stop.

    Every network starts from the same weights and sees the same order of rows, so each comes out as it would alone.
    """
    pairs, n, _ = x.shape
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
    held, rest = held_out(n, seed)
    watched = (held if len(held) else rest).to(x.device)  # with so few rows all are learned from, and watched
    generator = torch.Generator().manual_seed(seed + 1)
    optimizer = torch.optim.AdamW(
        list(stacked.values()), schedule.learning_rate, weight_decay=schedule.weight_decay, fused=True
    )
    plan = torch.optim.lr_scheduler.OneCycleLR(optimizer, schedule.learning_rate, schedule.steps, pct_start=0.1)
    best = {name: p.detach().clone() for name, p in stacked.items()}

    def watch() -> Tensor:
        with torch.no_grad():
            return (forward(stacked, x[:, watched]) - y[:, watched]).square().mean(dim=(1, 2))

    least = watch()  # of the start, which may be the best there is
    waited, reached = torch.zeros(pairs, device=x.device), torch.zeros(pairs, device=x.device)
    with progress(title, schedule.steps, "steps") as advance:
        for step in range(1, schedule.steps + 1):
            rows = rest[torch.randint(len(rest), (min(schedule.batch, len(rest)),), generator=generator)].to(x.device)
            losses = (forward(stacked, x[:, rows]) - y[:, rows]).square().mean(dim=(1, 2))
            optimizer.zero_grad(set_to_none=True)
            losses.sum().backward()
            _clip(stacked)
            optimizer.step()
            plan.step()
            advance(1)
            if step % _LOOK and step < schedule.steps:
                continue
            seen = watch()
            better = (seen < least) & (waited < schedule.patience)
            least, reached = torch.where(better, seen, least), torch.where(better, float(step), reached)
            waited = torch.where(better, 0.0, waited + 1)
            for name, p in stacked.items():
                best[name] = torch.where(better.view(-1, *[1] * (p.ndim - 1)), p.detach(), best[name])
            if bool((waited >= schedule.patience).all()):
                break
    if not bool(seen.isfinite().all()):
        raise InputError(f"The loss of {title} is not a finite number; lower the learning rate.")
    return [
        Trained(
            {**{name: p[k].clone() for name, p in best.items()}, **buffers},
            {"steps": int(reached[k]), "held_out": float(least[k]), "held_out_rows": len(held)},
        )
        for k in range(pairs)
    ]


def held_out(n: int, seed: int) -> tuple[Tensor, Tensor]:
    """A tenth of the rows, drawn, that say when to stop, and the others; all are others where there are under ten."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    count = max(1, round(_HELD * n)) if n >= 10 else 0
    return order[:count], order[count:]


def _clip(parameters: Parameters) -> None:
    """Each network's gradient to a norm of at most `_CLIP`, by itself."""
    gradients = [p.grad for p in parameters.values() if p.grad is not None]
    norm = sum(g.flatten(1).square().sum(dim=1) for g in gradients)
    factor = (_CLIP / torch.as_tensor(norm).sqrt().clamp_min(1e-12)).clamp_max(1.0)
    for gradient in gradients:
        gradient.mul_(factor.view(-1, *[1] * (gradient.ndim - 1)))
