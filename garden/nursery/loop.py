"""The training loop: a schedule by steps or by time, bf16, checkpoints, held-out losses, a log."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nursery import checkpoints
from nursery.batches import held_out_starts, mixed, step_starts
from nursery.objectives import Objective
from nursery.recipes import Recipe

_LOOK = 20  # steps between two looks at the loss, which wait for the device
_SOME, _ALL = 2048, 16384  # held-out sequences during training and at its end
_EVALUATED = 256  # held-out sequences at a time


@dataclass(frozen=True)
class Length:
    """How long to train: so many steps or so many seconds."""

    steps: int | None = None
    seconds: float | None = None

    def part(self, share: float) -> Length:
        """This share of it."""
        return Length(
            None if self.steps is None else round(share * self.steps),
            None if self.seconds is None else share * self.seconds,
        )

    def share(self, step: int, elapsed: float) -> float:
        """How much of the training is behind, 0 to 1."""
        done = step / self.steps if self.steps is not None else elapsed / (self.seconds or math.inf)
        return min(1.0, done)


def rate(share: float, peak: float, warmup: float) -> float:
    """The learning rate: a straight line up over the warm-up, a straight line down to 0 after it."""
    return peak * (share / warmup if share < warmup else (1 - share) / (1 - warmup))


@dataclass
class Trainer:
    """One model in training. Everything random comes from the seed and the step's number, so that it can be resumed."""

    objective: Objective
    recipe: Recipe
    seed: int
    length: Length
    train: Tensor  # the token stream on the device
    held: Tensor
    folder: Path  # checkpoint and log go here
    batch: int
    compiled: bool
    every: float = 60.0  # seconds between held-out losses and checkpoints
    keep: Callable[[dict[str, float]], None] | None = None  # is given the held-out losses with each checkpoint
    step: int = 0
    elapsed: float = 0.0
    losses: list[dict[str, float]] = field(default_factory=list)  # held-out, over time

    def __post_init__(self) -> None:
        self.device = self.train.device
        held_out_starts(len(self.held), self.recipe.length - 2, 1)  # too little text is said before training, not after
        self.optimizer = self._optimizer()
        self._generator = torch.Generator(self.device)
        self._forward: Callable[..., Any] = (
            torch.compile(self.objective, dynamic=False) if self.compiled else self.objective
        )

    def run(self) -> dict[str, float]:
        """Train to the end, from the checkpoint if there is one; the held-out losses at the end."""
        state = checkpoints.load(self.folder / "checkpoint", self.objective, self.optimizer)
        if state is not None:
            self.step, self.elapsed, self.losses = state["step"], state["elapsed"], state["losses"]
            print(f"Going on from step {self.step}.", flush=True)
        clock = _Clock(self.elapsed)
        noted, since = self.elapsed, (self.step, self.elapsed)
        while self.length.share(self.step, self.elapsed) < 1:
            loss = self.advance()
            if clock.started is None:
                float(loss)
                clock.start()  # the first step compiles; that is not training time
                since = (self.step, self.elapsed)
            self.elapsed = clock.elapsed()
            if self.step % _LOOK == 0:
                value = float(loss)
                self.elapsed = clock.elapsed()
                if not math.isfinite(value):
                    raise SystemExit(f"The loss is {value} at step {self.step}; lower the learning rate.")
                if self.step % (10 * _LOOK) == 0 or self.elapsed - noted >= self.every:
                    speed = (
                        self.batch * self.recipe.length * (self.step - since[0]) / max(1e-9, clock.elapsed() - since[1])
                    )
                    self._log({"loss": value, "tokens_a_second": round(speed)})
                    since = (self.step, clock.elapsed())
            if self.elapsed - noted >= self.every:
                losses = self._note(_SOME)
                self._save()
                if self.keep is not None:
                    self.keep(losses)
                noted = self.elapsed = clock.elapsed()
                since = (self.step, self.elapsed)
        self._save()
        return self._note(_ALL)

    def advance(self) -> Tensor:
        """One step; the loss, not waited for."""
        share = self.length.share(self.step, self.elapsed)
        for group in self.optimizer.param_groups:
            group["lr"] = rate(share, self.recipe.learning_rate, self.recipe.warmup)
        self._generator.manual_seed(mixed(self.seed, self.step, 2))
        width = self.recipe.length - 2
        starts = step_starts(self.seed, self.step, self.batch, len(self.train), width)
        tokens = self.objective.sequences(self.train, starts, self.recipe.length)
        batch = self.objective.prepare(tokens, self._generator)
        with self._autocast():
            loss = self._forward(batch)["loss"]
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.objective.parameters(), self.recipe.clip)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return loss.detach()

    @torch.no_grad()
    def held_out(self, most: int) -> dict[str, float]:
        """The objective's losses on held-out windows, the same windows and masks whatever the seed."""
        width = self.recipe.length - 2
        starts = held_out_starts(len(self.held), width, most)
        totals: dict[str, float] = {}
        self.objective.eval()
        for i, part in enumerate(starts.split(_EVALUATED)):
            self._generator.manual_seed(mixed(0, i, 3))
            tokens = self.objective.sequences(self.held, part, self.recipe.length)
            with self._autocast():
                found = self.objective(self.objective.prepare(tokens, self._generator))
            for name, loss in found.items():
                totals[name] = totals.get(name, 0.0) + float(loss) * len(part) / len(starts)
        self.objective.train()
        return totals

    def _note(self, most: int) -> dict[str, float]:
        found = self.held_out(most)
        self.losses.append({"step": self.step, "elapsed": round(self.elapsed, 1), **found})
        self._log({f"held_out_{name}": value for name, value in found.items()})
        return found

    def _save(self) -> None:
        state = {"step": self.step, "elapsed": self.elapsed, "losses": self.losses}
        checkpoints.save(self.folder / "checkpoint", self.objective, self.optimizer, state)

    def _log(self, values: dict[str, float]) -> None:
        share = self.length.share(self.step, self.elapsed)
        line = json.dumps({"step": self.step, "elapsed": round(self.elapsed, 1), "share": round(share, 4), **values})
        print(line, flush=True)
        with (self.folder / "log.jsonl").open("a", encoding="utf-8") as file:
            file.write(line + "\n")

    def _autocast(self) -> Any:
        return torch.autocast("cuda", torch.bfloat16) if self.device.type == "cuda" else nullcontext()

    def _optimizer(self) -> torch.optim.Optimizer:
        """AdamW; biases and norms do not decay."""
        recipe, parameters = self.recipe, list(self.objective.parameters())
        groups = [
            {"params": [p for p in parameters if p.ndim > 1], "weight_decay": recipe.weight_decay},
            {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0},
        ]
        fused = self.train.device.type == "cuda"
        return torch.optim.AdamW(groups, lr=0.0, betas=recipe.betas, eps=recipe.epsilon, fused=fused)


class _Clock:
    """Seconds of training, those before a resume included; it starts after the first step."""

    def __init__(self, before: float) -> None:
        self.before, self.started = before, None  # type: float, float | None

    def start(self) -> None:
        self.started = time.perf_counter()

    def elapsed(self) -> float:
        return self.before + (time.perf_counter() - self.started if self.started is not None else 0.0)
