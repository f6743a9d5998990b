"""What a token costs a model, and how many of them make a good batch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import chain, repeat

from layerscope.models import Model
from layerscope.models.anatomy import block_modules
from layerscope.models.own import OwnModel

_ON_CPU = 1024  # tokens per batch, padding included: small batches stay in a CPU's caches
_LEAST, _MOST = 4096, 16384  # the same elsewhere
# On a GPU: parameters times tokens of a batch in float32. It takes long enough (60 ms on an H200) that little beside
# the products counts, and larger batches would only have more padding.
_WORK = 1.4e12
_HALF = 8  # times as much in 16 bits
# Texts that are tokenised and sorted together, on a GPU: nothing can run before the first are, and while some run, as
# many times more can be tokenised: some 5 times where a token costs the model little, and more where it costs much.
_CHEAP, _DEAR, _LARGEST = (1536, 8192), (1024, 16384), 65536


def block_parameters(model: Model) -> int:
    """Parameters that a token passes: those of blocks, as often as they run; all, where it is not known which."""
    known = not isinstance(model, OwnModel)
    blocks = block_modules(model.network.base_model, model.anatomy) if known else [model.network]
    return sum(parameter.numel() for block in blocks for parameter in block.parameters())


def growing_windows(models: Sequence[Model], most: int | None = None) -> Iterator[int]:
    """How many texts the windows of models on a GPU have, `most` at most."""
    growing = _DEAR if min(map(default_tokens, models)) == _LEAST else _CHEAP
    most = _LARGEST if most is None else most
    return chain((size for size in growing if size < most), repeat(most))


def default_tokens(model: Model) -> int:
    """Tokens of an ordinary batch of a model where it is: a power of two."""
    if model.device.type == "cpu":
        return _ON_CPU
    if model.device.type != "cuda":
        return _MOST
    work = _WORK * (_HALF if model.network.dtype.itemsize == 2 else 1)
    tokens = work / max(1, block_parameters(model))
    return int(2 ** round(math.log2(min(max(tokens, _LEAST), _MOST))))
