"""The token stream on the device, and which windows of it a step sees.

A window is the tokens between a sequence's [CLS] and [SEP]. In every epoch the stream is cut anew from a drawn offset
and the windows come in a drawn order, so that an epoch sees every token once, and a step needs no state but its number.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

from nursery.vocabulary import CLS_ID, SEP_ID


def stream_on(device: torch.device, tokens: np.ndarray) -> Tensor:
    """The tokens as int16 (a vocabulary below 32,768 fits), on the device."""
    return torch.from_numpy(np.array(tokens).view(np.int16)).to(device)


@lru_cache(maxsize=2)
def epoch_starts(seed: int, epoch: int, size: int, width: int) -> Tensor:
    """Where the windows of an epoch begin, in the order in which they are seen (on the CPU, alike on every device)."""
    generator = torch.Generator().manual_seed(mixed(seed, epoch, 1))
    offset = int(torch.randint(width, (1,), generator=generator)) if size >= 2 * width else 0
    windows = (size - offset) // width
    if windows < 1:
        raise SystemExit(f"The corpus has {size} tokens, which is less than one sequence of {width}.")
    return offset + width * torch.randperm(windows, generator=generator)


def step_starts(seed: int, step: int, batch: int, size: int, width: int) -> Tensor:
    """Where the windows of a step begin. An epoch's last windows that fill no batch are left out."""
    smallest = max(1, (size - width) // width)  # windows that every epoch has, whatever its offset
    epoch, within = divmod(step, max(1, smallest // batch))
    starts = epoch_starts(seed, epoch, size, width)
    return starts[(within * batch + torch.arange(batch)) % len(starts)]


def sequences(stream: Tensor, starts: Tensor, length: int, summary_last: bool) -> Tensor:
    """(B, length) token ids: `[CLS] window [SEP]`, or `window [SEP] [CLS]`."""
    places = starts.to(stream.device, non_blocking=True).unsqueeze(1)
    window = stream[places + torch.arange(length - 2, device=stream.device)].long()
    first, last = window.new_full((len(window), 1), CLS_ID), window.new_full((len(window), 1), SEP_ID)
    return torch.cat([window, last, first] if summary_last else [first, window, last], dim=1)


def held_out_starts(size: int, width: int, most: int) -> Tensor:
    """At most `most` windows that do not overlap, spread evenly over the held-out stream."""
    windows = size // width
    if windows < 1:
        raise SystemExit(f"The held-out articles have {size} tokens, less than one sequence of {width}; use more text.")
    return width * torch.linspace(0, windows - 1, min(most, windows)).long()


def mixed(*numbers: int) -> int:
    """One seed out of several numbers."""
    state = np.random.SeedSequence(numbers).generate_state(2, np.uint32)
    return int(state[0]) << 31 ^ int(state[1])
