"""Losses of healing, place by place: of the text itself, and against a teacher's distribution.

A head with an output for every token makes the largest tensor of a training by far. Here it is asked for a portion of
the places at a time. The derivative of each loss with respect to the logits is known in closed form, so that a portion
is gone once its share of the gradients is added up: memory does not grow with the vocabulary times the batch, and
nothing is computed twice.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

Head = Callable[[Tensor], Tensor]  # (places, width) states -> (places, outputs) logits
Ask = Callable[[slice], "Tensor | Likeliest"]  # what the teacher says of some places
_SHARES = 8  # in which logarithms of a portion are made
_NUMBERS = {"cpu": 1 << 23, "cuda": 1 << 27}  # logits that are made at once


@dataclass(frozen=True)
class Likeliest:
    """A teacher's likeliest outputs at some places. All others together count as one further outcome."""

    outputs: Tensor  # (places, k) which outputs, int64
    logs: Tensor  # (places, k) their log-probabilities

    def __getitem__(self, part: slice) -> Likeliest:
        return Likeliest(self.outputs[part], self.logs[part])

    @staticmethod
    def from_logits(logits: Tensor, k: int) -> Likeliest:
        """Return the k likeliest of (places, outputs) logits."""
        logs, outputs = logits.float().log_softmax(dim=-1).topk(min(k, logits.shape[-1]), dim=-1)
        return Likeliest(outputs, logs)

    @property
    def rest(self) -> Tensor:
        """(places,) the probability of all other outputs together."""
        return (1 - self.logs.double().exp().sum(dim=-1)).clamp(min=0).float()


def divergence(student: Tensor, teacher: Tensor | Likeliest) -> tuple[Tensor, Tensor]:
    """Return KL(teacher || student) at each place, and what the gradient draws the student towards.

    Args:
        student: (places, outputs) log-probabilities.
        teacher: (places, outputs) logits, or the likeliest outputs.

    Returns:
        (places,) divergences in nats, and (places, outputs) target probabilities: the derivative with respect to the
        student's logits is its probabilities less these.
    """
    if isinstance(teacher, Tensor):
        logs = teacher.float().log_softmax(dim=-1)
        wanted = logs.exp()
        return (wanted * (logs - student)).sum(dim=-1), wanted
    student_logs = student.gather(-1, teacher.outputs)
    others = student.scatter(-1, teacher.outputs, -torch.inf)
    student_rest = others.logsumexp(dim=-1)
    rest = torch.where(student_rest.isfinite(), teacher.rest, 0.0)  # where no output is left over, a rest is rounding
    likeliest = teacher.logs.exp()
    left = torch.where(rest > 0, rest * (rest.clamp(min=1e-30).log() - student_rest), torch.zeros_like(rest))
    share = torch.where(rest > 0, rest.clamp(min=1e-30).log() - student_rest, torch.full_like(rest, -torch.inf))
    wanted = (others + share[:, None]).exp().scatter(-1, teacher.outputs, likeliest)
    return (likeliest * (teacher.logs - student_logs)).sum(dim=-1) + left, wanted


def mixed(logits: Tensor, targets: Tensor | None, teacher: Tensor | Likeliest | None, mix: float) -> tuple[Tensor, Any]:
    """Return (places,) `mix` x divergence + (1 - mix) x cross entropy, and its derivative with respect to the logits.

    Without a teacher it is the cross entropy alone, without targets the divergence alone.
    """
    mix = 0.0 if teacher is None else 1.0 if targets is None else mix
    logs = logits.to(torch.float32, copy=True)
    for rows in logs.split(-(-len(logs) // _SHARES) or 1):  # in place, and what the sums need besides is an eighth
        rows.sub_(rows.amax(dim=-1, keepdim=True))
        rows.sub_(rows.logsumexp(dim=-1, keepdim=True))
    loss = torch.zeros(len(logits), device=logits.device)
    wanted = None
    if teacher is not None and mix > 0:
        apart, wanted = divergence(logs, teacher)
        loss += mix * apart
    if targets is not None and mix < 1:
        loss -= (1 - mix) * logs.gather(-1, targets[:, None])[:, 0]
    gradient = logs.exp_()  # in the same memory: nothing asks for the logarithms again
    if wanted is not None:
        gradient.sub_(wanted, alpha=mix)
    if targets is not None and mix < 1:
        gradient.scatter_add_(-1, targets[:, None], gradient.new_full((len(logits), 1), mix - 1))
    return loss, gradient


def portions(places: int, outputs: int, device: torch.device) -> list[slice]:
    """Return slices of the places whose logits are not too many at once."""
    size = max(1, _NUMBERS.get(device.type, 1 << 25) // max(outputs, 1))
    return [slice(start, min(start + size, places)) for start in range(0, places, size)]


def head_loss(
    head: Head,
    states: Tensor,
    targets: Tensor | None,
    *,
    outputs: int,
    parameters: Sequence[Tensor] = (),
    teacher: Ask | None = None,
    mix: float = 0.0,
) -> Tensor:
    """Return the mean loss over places, whose logits are never all there at once.

    Args:
        head: From states to logits, place by place.
        states: (places, width) what it reads.
        targets: (places,) the right outputs, or None for the teacher's distribution alone.
        outputs: How many outputs the head has.
        parameters: Those of the head that are trained.
        teacher: What the teacher says of some places: logits, or its likeliest outputs.
        mix: The teacher's share of the loss.

    Returns:
        A number, with gradients for the states and the parameters.
    """
    parts = portions(len(states), outputs, states.device)
    loss: Tensor = _HeadLoss.apply(head, targets, teacher, mix, parts, states, *parameters)
    return loss


class _HeadLoss(torch.autograd.Function):
    """Computes the gradients beside the loss, a portion of the places at a time."""

    @staticmethod
    def forward(ctx: Any, head: Head, targets: Any, teacher: Any, mix: float, parts: Any, *inputs: Tensor) -> Tensor:
        states, *parameters = inputs
        wanted = [k for k, needed in enumerate(ctx.needs_input_grad[5:]) if needed]
        sums: list[Any] = [torch.zeros_like(value) if k in wanted else None for k, value in enumerate(inputs)]
        total = torch.zeros((), device=states.device)
        for part in parts:
            with torch.enable_grad():
                some = states[part].detach().requires_grad_(0 in wanted)
                logits = head(some)
            asked = None if teacher is None else teacher(part)
            loss, gradient = mixed(logits.detach(), None if targets is None else targets[part], asked, mix)
            total += loss.sum()
            if wanted:
                sources = [some if k == 0 else parameters[k - 1] for k in wanted]
                gradients = torch.autograd.grad(logits, sources, gradient.to(logits.dtype), allow_unused=True)
                for k, value in zip(wanted, gradients, strict=True):
                    if k == 0:
                        sums[0][part] = value
                    elif value is not None:
                        sums[k] += value
        count = max(len(states), 1)
        ctx.save_for_backward(*(value for value in sums if value is not None))
        ctx.wanted, ctx.count = [value is not None for value in sums], count
        return total / count

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Any, ...]:
        scale, saved = gradients[0] / ctx.count, iter(ctx.saved_tensors)
        return (*(None,) * 5, *(next(saved) * scale if wanted else None for wanted in ctx.wanted))
