"""What a token costs a model, and how many of them make a good batch."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import repeat

from layerscope.models import Model
from layerscope.models.anatomy import block_modules
from layerscope.models.own import OwnModel

_ON_CPU = 1024  # tokens per batch, padding included: small batches stay in a CPU's caches
_LEAST, _MOST = 4096, 32768  # the same on CUDA
_ELSEWHERE = 16384  # the same on other devices
# On a GPU: parameters times tokens of a batch in float32. It takes long enough (60 ms on an H200) that little beside
# the products counts, and larger batches would only have more padding.
_WORK = 1.4e12
_HALF = 8  # times as much in 16 bits
# Texts that are tokenised and sorted together, on CUDA: nothing can run before those of the first window are, and the
# next one must be by the time that they have run, or the device waits. So the first window is small, and each is so
# many times larger than the one before: few times where a batch has many tokens, as they cost the model little.
_FIRST = {4096: (1024, 16), 8192: (1536, 5), 16384: (1536, 5), 32768: (2048, 2)}
_LARGEST = 65536


def block_parameters(model: Model) -> int:
    """Parameters that a token passes: those of blocks, as often as they run; all, where it is not known which."""
    known = not isinstance(model, OwnModel)
    blocks = block_modules(model.network.base_model, model.anatomy) if known else [model.network]
    return sum(parameter.numel() for block in blocks for parameter in block.parameters())


def growing_windows(tokens: int, most: int | None = None) -> Iterator[int]:
    """How many texts the windows have where an ordinary batch has so many tokens, `most` at most."""
    size, times = _FIRST[max(_LEAST, tokens)]
    most = _LARGEST if most is None else most
    while size < most:
        yield size
        size *= times
    yield from repeat(most)


def default_tokens(model: Model) -> int:
    """Tokens of an ordinary batch of a model where it is: a power of two."""
    if model.device.type == "cpu":
        return _ON_CPU
    if model.device.type != "cuda":
        return _ELSEWHERE
    work = _WORK * (_HALF if model.network.dtype.itemsize == 2 else 1)
    tokens = work / max(1, block_parameters(model))
    return int(2 ** round(math.log2(min(max(tokens, _LEAST), _MOST))))
