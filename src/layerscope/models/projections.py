"""The attention matrices of a block, attention head by attention head."""

from __future__ import annotations

from torch import Tensor, nn

from layerscope.errors import ModelError, choose
from layerscope.models.anatomy import FAMILIES, block_modules
from layerscope.models.load import Model

MATRICES = ("query", "key", "value", "output")


def head_matrices(model: Model, block: int, which: str) -> Tensor:
    """(attention heads, size of a head, width) of block 1..L: a view into the model's own weights.

    Grouped keys and values have fewer heads than queries have. Biases are left out.
    """
    choose("attention matrix", which, MATRICES)
    anatomy, config = model.anatomy, model.network.config
    projections = anatomy.projections
    if projections is None:
        known = ", ".join(name for name, each in FAMILIES.items() if each.projections)
        raise ModelError(
            f"Where {model.name} ({anatomy.family}) keeps its attention matrices is not known; it is for {known}."
        )
    module = block_modules(model.network.base_model, anatomy)[block - 1]
    weight = _weight(module, getattr(projections, which))
    if projections.layout == "by head":
        return weight.permute(1, 2, 0)
    if projections.layout == "transposed":
        weight = weight.T
    heads = int(config.num_attention_heads)
    size = getattr(config, "head_dim", None) or model.width // heads
    if which == "output":
        return weight.T.unflatten(0, (-1, size))
    if projections.fused == "no":
        return weight.unflatten(0, (-1, size))
    place = MATRICES.index(which)
    if projections.fused == "thirds":
        return weight.unflatten(0, (3, -1, size))[place]
    return weight.unflatten(0, (-1, 3, size))[:, place]


def _weight(block: nn.Module, path: str) -> Tensor:
    part: object = block
    for name in path.split("."):
        part = getattr(part, name)
    weight = getattr(part, "weight", part)
    assert isinstance(weight, Tensor)
    return weight.detach()
