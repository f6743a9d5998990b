"""Whether a batch has padding: known on the host, where transformers would read it back from the device.

In every forward transformers asks whether its mask hides anything, to leave it out if not, and waits for the device to
say so: for all the work that was given to it before. Whoever pads a batch knows the answer.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import Tensor
from transformers import masking_utils

_QUESTIONS = ("_ignore_causal_mask_sdpa", "_ignore_bidirectional_mask_sdpa")
_Batch = tuple[tuple[int, ...], bool]  # the shape of its mask, and whether that hides anything


class _Known(threading.local):
    batch: _Batch | None = None


_known = _Known()


@contextmanager
def padding_known(shape: tuple[int, ...], *, padded: bool) -> Iterator[None]:
    """During one forward of this thread over a batch of this shape (texts, time), without caches."""
    _answer_questions()
    before, _known.batch = _known.batch, (tuple(shape), padded)
    try:
        yield
    finally:
        _known.batch = before


@functools.cache
def _answer_questions() -> None:
    """Put what knows the answer before the functions that ask; without a batch they are what they were."""
    for name in _QUESTIONS:
        if hasattr(masking_utils, name):
            setattr(masking_utils, name, _answering(getattr(masking_utils, name)))


def _answering(ask: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(ask)
    def answer(padding_mask: Tensor | None, *args: Any, **kwargs: Any) -> Any:
        if padding_mask is None or _known.batch is None or tuple(padding_mask.shape) != _known.batch[0]:
            return ask(padding_mask, *args, **kwargs)
        return False if _known.batch[1] else ask(None, *args, **kwargs)

    return answer
