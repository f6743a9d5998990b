"""Which products lose digits, and where float64 costs nothing."""

from __future__ import annotations

import math

import torch
from torch import Tensor

# GPUs whose float64 units are half as fast as their float32 units; elsewhere they are 1/32 or less.
_FULL_FLOAT64 = {(6, 0), (7, 0), (8, 0), (9, 0), (10, 0)}
_SAFE = 1e9  # float32 products of numbers up to this, and down to one over it, lose nothing in sums of many rows


def float64_is_free(device: torch.device) -> bool:
    """Whether products in float64 cost next to nothing on a device: on GPUs made for computing."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) in _FULL_FLOAT64


def rounds_products(device: torch.device) -> bool:
    """Whether float32 products are made of fewer digits there, as someone has allowed."""
    return device.type == "cuda" and torch.backends.cuda.matmul.allow_tf32


def column_sizes(rows: Tensor) -> Tensor | None:
    """(columns,) powers of two near the largest numbers of the columns; None where float32 holds the products."""
    least, most = torch.aminmax(rows, dim=0)
    most = torch.maximum(most, -least)
    if float(most.max()) <= _SAFE and float(torch.where(most > 0, most, 1.0).min()) >= 1 / _SAFE:
        return None
    return torch.where(most > 0, torch.exp2(most.double().log2().floor()).float(), 1.0)


def power_of_two(numbers: Tensor) -> float:
    """A power of two near the largest number, for dividing by: no digit is lost in that."""
    most = float(numbers.abs().max()) if numbers.numel() else 0.0
    return 2.0 ** math.floor(math.log2(most)) if 0 < most < math.inf else 1.0
