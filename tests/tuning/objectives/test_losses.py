"""Losses in portions: the same numbers and gradients as all at once, and what is left out of a teacher."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from layerscope.tuning.objectives import losses
from layerscope.tuning.objectives.losses import Likeliest, divergence, head_loss, mixed

WIDTH, OUTPUTS, PLACES = 6, 11, 17


def parts(seed=0):
    torch.manual_seed(seed)
    head = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.GELU(), nn.Linear(WIDTH, OUTPUTS, bias=False)).double()
    states = torch.randn(PLACES, WIDTH, dtype=torch.float64, requires_grad=True)
    return head, states, torch.randint(OUTPUTS, (PLACES,)), 3 * torch.randn(PLACES, OUTPUTS, dtype=torch.float64)


def plainly(logits, targets, teacher, mix):
    """The whole loss by torch's own functions."""
    own = torch.nn.functional.cross_entropy(logits, targets)
    log, wanted = logits.log_softmax(-1), teacher.log_softmax(-1)
    return mix * torch.nn.functional.kl_div(log, wanted, reduction="batchmean", log_target=True) + (1 - mix) * own


@pytest.mark.parametrize("mix", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("at_once", [OUTPUTS, 5 * OUTPUTS, 1000])
def test_portions_give_the_loss_and_the_gradients_of_the_whole(mix, at_once, monkeypatch):
    monkeypatch.setitem(losses._NUMBERS, "cpu", at_once)
    head, states, targets, teacher = parts()
    expected = plainly(head(states), targets, teacher, mix)
    wanted = torch.autograd.grad(2 * expected, [states, *head.parameters()])
    loss = head_loss(
        head,
        states,
        targets,
        outputs=OUTPUTS,
        parameters=list(head.parameters()),
        teacher=lambda part: teacher[part],
        mix=mix,
    )
    got = torch.autograd.grad(2 * loss, [states, *head.parameters()])
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-6)
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-6)


def test_a_frozen_head_gets_no_gradient_and_no_teacher_is_the_texts_own_loss():
    head, states, targets, _ = parts()
    head.requires_grad_(False)
    loss = head_loss(head, states, targets, outputs=OUTPUTS, mix=0.5)
    expected = torch.nn.functional.cross_entropy(head(states), targets)
    torch.testing.assert_close(loss.double(), expected, rtol=1e-5, atol=1e-6)
    (own,), (whole,) = (torch.autograd.grad(value, [states]) for value in (loss, expected))
    torch.testing.assert_close(own, whole, rtol=1e-4, atol=1e-7)


def test_without_targets_the_teacher_alone_counts_whatever_the_mix():
    head, states, targets, teacher = parts()
    loss = head_loss(head, states, None, outputs=OUTPUTS, teacher=lambda part: teacher[part], mix=0.2)
    torch.testing.assert_close(loss.double(), plainly(head(states), targets, teacher, 1.0), rtol=1e-5, atol=1e-6)


def test_no_more_logits_than_a_portion_are_made_at_once(monkeypatch):
    monkeypatch.setitem(losses._NUMBERS, "cpu", 4 * OUTPUTS)
    head, states, targets, _ = parts()
    seen = []

    def watched(some):
        seen.append(len(some))
        return head(some)

    head_loss(watched, states, targets, outputs=OUTPUTS)
    assert max(seen) == 4
    assert sum(seen) == PLACES


@given(seed=st.integers(0, 99), k=st.integers(1, OUTPUTS))
@settings(max_examples=25, deadline=None)
def test_the_likeliest_outputs_never_say_more_than_all_of_them(seed, k):
    _, _, _, teacher = parts(seed)
    student = torch.randn(PLACES, OUTPUTS, generator=torch.Generator().manual_seed(seed)).log_softmax(-1)
    whole, _ = divergence(student, teacher)
    some, wanted = divergence(student, Likeliest.from_logits(teacher, k))
    assert (some <= whole + 1e-5).all()
    assert (some >= -1e-5).all()
    torch.testing.assert_close(wanted.sum(-1), torch.ones(PLACES), rtol=1e-4, atol=1e-4)
    if k >= OUTPUTS - 1:  # then what is left over is one output, or none
        torch.testing.assert_close(some, whole, rtol=1e-3, atol=1e-4)


def test_the_gradient_of_the_likeliest_outputs_is_that_of_their_divergence():
    _, _, targets, teacher = parts()
    logits = torch.randn(PLACES, OUTPUTS, dtype=torch.float64, requires_grad=True)
    few = Likeliest.from_logits(teacher, 3)

    def loss(values):
        logs = values.log_softmax(-1)
        own = logs.gather(-1, few.outputs)
        rest = (1 - own.exp().sum(-1)).log()
        apart = (few.logs.exp() * (few.logs - own)).sum(-1) + few.rest * (few.rest.log() - rest)
        return 0.7 * apart + 0.3 * torch.nn.functional.cross_entropy(values, targets, reduction="none")

    (expected,) = torch.autograd.grad(loss(logits).sum(), [logits])
    value, gradient = mixed(logits.detach(), targets, few, 0.7)
    torch.testing.assert_close(value.double(), loss(logits).detach(), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(gradient.double(), expected, rtol=1e-4, atol=1e-5)


class Sizes(TorchDispatchMode):
    """Counts the float32 tensors with memory of their own that operations make of so many numbers."""

    def __init__(self, numbers):
        super().__init__()
        self.numbers, self.made = numbers, set()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        answer = function(*args, **(kwargs or {}))
        for tensor in answer if isinstance(answer, (tuple, list)) else (answer,):
            if isinstance(tensor, torch.Tensor) and tensor.dtype == torch.float32 and tensor.numel() >= self.numbers:
                self.made.add(tensor.untyped_storage().data_ptr())
        return answer


def test_beside_logits_in_bfloat16_there_is_one_tensor_of_their_size_in_float32():
    torch.manual_seed(0)
    logits, targets = torch.randn(300, 50, dtype=torch.bfloat16), torch.randint(50, (300,))
    with Sizes(logits.numel()) as sizes:
        loss, gradient = mixed(logits, targets, None, 0.0)
    assert len(sizes.made) == 1
    wide = logits.double().requires_grad_()
    expected = torch.nn.functional.cross_entropy(wide, targets, reduction="none")
    torch.testing.assert_close(loss.double(), expected.detach(), rtol=1e-6, atol=1e-6)
    (wanted,) = torch.autograd.grad(expected.sum(), [wide])
    torch.testing.assert_close(gradient.double(), wanted, rtol=1e-5, atol=1e-6)
