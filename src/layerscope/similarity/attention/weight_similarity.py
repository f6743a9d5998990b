"""Weights as such: the attention matrices of a block by attention head, and how far two models' weights are apart.

Heads have no order of their own, so the distance of attention matrices is taken after the permutation that makes it
smallest. A model and the one that it was tuned from share their coordinates, so all their parameters are set beside one
another as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from layerscope.drawing.captions import numbers
from layerscope.drawing.figure import HeatmapAxis
from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.drawing.figures.heatmap import HeatmapFigure
from layerscope.errors import InputError, ModelError, choose
from layerscope.models import load
from layerscope.models.architecture import block_modules
from layerscope.models.families import FAMILIES
from layerscope.models.load import Model
from layerscope.results import Tabled, provenance_of

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure


MATRICES = ("query", "key", "value", "output")
PARAMETERS = "parameters"  # all of a block, by their own names


def head_matrices(model: Model, block: int, which: str) -> Tensor:
    """(attention heads, size of a head, width) of block 1..L: a view into the model's own weights.

    Grouped keys and values have fewer heads than queries have. Biases are left out.
    """
    choose("attention matrix", which, MATRICES)
    architecture, config = model.architecture, model.network.config
    projections = architecture.projections
    if projections is None:
        families = ", ".join(name for name, each in FAMILIES.items() if each.projections)
        raise ModelError(
            f"Where {model.name} ({architecture.family}) keeps its attention matrices is not known; it is for "
            f"{families}."
        )
    module = block_modules(model.network.base_model, architecture)[block - 1]
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
    """The weight matrix at a dotted path inside a block."""
    part: object = block
    for name in path.split("."):
        part = getattr(part, name)
    weight = getattr(part, "weight", part)
    assert isinstance(weight, Tensor)
    return weight.detach()


class WeightDistances(Tabled):
    """How far two models' attention matrices, or all their parameters, are apart, layer by layer."""

    name = "weights"

    @property
    def frame(self) -> pandas.DataFrame:
        """Columns: layer, which, distance, unpermuted, permutation.

        Of all parameters: layer, which, distance, change, size. `change` is the norm of A less B,
        `size` the root mean square of the norms of A and B.
        """
        return self._frame

    def figures(self) -> list[Figure]:
        if "permutation" not in self._frame:
            grid = self._frame.pivot_table("distance", "which", "layer", sort=False)
            kinds, layers = tuple(map(str, grid.index)), tuple(f"{layer}" for layer in grid.columns)
            drawn_all = HeatmapFigure(
                title="Distance of all parameters",
                shows=r"$\lVert A - B \rVert_F$ over the root mean square of $\lVert A \rVert_F$ and "
                r"$\lVert B \rVert_F$, for every parameter of every block.",
                reading="0 is equal. A row that stands out is a kind of parameter that was changed more than others, a "
                "column a block.",
                rows=HeatmapAxis("parameter", ("",) * len(kinds), kinds),
                columns=HeatmapAxis("block", ("",) * len(layers), layers),
                values=grid.to_numpy(dtype=float),
                value_name="relative distance",
                scale=(0.0, float(max(grid.to_numpy(dtype=float).max(), 1e-12))),
            )
            return [drawn_all, numbers("Every parameter", "Distances of every block.", self._frame)]
        series = tuple(
            Series(str(which), tuple(map(float, part["layer"])), tuple(map(float, part["distance"])))
            for which, part in self._frame.groupby("which", sort=False)
        )
        drawn = CurveFigure(
            title="Distance of attention matrices",
            shows=r"$\lVert A - P B \rVert_F$ over the root mean square of $\lVert A \rVert_F$ and "
            r"$\lVert B \rVert_F$, with P the best permutation of attention heads.",
            reading="0 is equal; unrelated matrices of like size come near the root of 2.",
            series=series,
            x_name="layer",
            y_name="relative distance",
        )
        table = numbers("Every matrix", "Distances of every layer.", self._frame.drop(columns="permutation"))
        return [drawn, table]

    def __repr__(self) -> str:
        return f"WeightDistances({self._frame['layer'].nunique()} layers, {', '.join(self._frame['which'].unique())})"


def compare_weights(a: Any, b: Any, which: str | Sequence[str] = MATRICES) -> WeightDistances:
    """Compare two models' attention matrices, layer by layer, after the best permutation of attention heads.

    Biases are left out. `parameters` compares all parameters of the blocks instead, biases too, each by its own name
    and as they are: for a model and the one that it was tuned from.

    Args:
        a: A model.
        b: Another one of the same shape.
        which: Which matrices: `query`, `key`, `value`, `output`, or several of them; or `parameters`.

    Returns:
        A result whose `frame` has one row per layer and matrix: `distance` is the norm of A less the permuted B, over
        the root mean square of the norms of A and B, with the permutation of B's heads that makes it smallest;
        `unpermuted` is the same without it; `permutation` lists the head of B (from 0) that stands for each head of
        A. 0 is equal; unrelated matrices of like size come near the root of 2. Of all parameters nothing is permuted,
        `change` has the norm of A less B and `size` the root mean square of both norms.

    Example:
        >>> import layerscope as ls
        >>> float(ls.compare_weights("garden:bert-s0", "garden:bert-s0", "query").frame["distance"].max())
        0.0
    """
    import pandas

    first, second = load(a), load(b)
    if first.depth != second.depth:
        raise InputError(
            f"Weights are compared layer by layer, and {first.name} has {first.depth} blocks, {second.name} "
            f"{second.depth}."
        )
    if which == PARAMETERS:
        return WeightDistances(pandas.DataFrame(_every_parameter(first, second)), provenance_of([first, second]))
    records = []
    for name in [which] if isinstance(which, str) else list(which):
        for layer in range(1, first.depth + 1):
            sides = [head_matrices(model, layer, name) for model in (first, second)]
            if sides[0].shape != sides[1].shape:
                raise InputError(
                    f"The {name} matrices of layer {layer} are (attention heads, size, width) {tuple(sides[0].shape)} "
                    f"in {first.name} and {tuple(sides[1].shape)} in {second.name}; only equal shapes can be compared."
                )
            distance, unpermuted, order = matched_distance(*(side.double() for side in sides))
            record = {"layer": layer, "which": name, "distance": distance, "unpermuted": unpermuted}
            records.append({**record, "permutation": order})
    return WeightDistances(pandas.DataFrame(records), provenance_of([first, second]))


def _every_parameter(first: Model, second: Model) -> list[dict[str, Any]]:
    """The distance of every parameter of every block, by its name in the block."""
    records = []
    for layer, (block, other) in enumerate(zip(first.blocks(), second.blocks(), strict=True), 1):
        ours, theirs = dict(block.named_parameters()), dict(other.named_parameters())
        for name in [*ours, *(name for name in theirs if name not in ours)]:
            shapes = [tuple(side[name].shape) if name in side else None for side in (ours, theirs)]
            if shapes[0] != shapes[1]:
                raise InputError(
                    f"{name} of block {layer} is {shapes[0] or 'not there'} in {first.name} and "
                    f"{shapes[1] or 'not there'} in {second.name}; only blocks of the same parameters can be compared."
                )
            left = ours[name].detach().double()
            right = theirs[name].detach().to(left.device).double()
            change = float((left - right).norm())
            scale = float(((left.pow(2).sum() + right.pow(2).sum()) / 2).sqrt())
            kind = name.removesuffix(".weight")
            distance = change / scale if scale else 0.0
            records.append({"layer": layer, "which": kind, "distance": distance, "change": change, "size": scale})
    return records


def matched_distance(a: Tensor, b: Tensor) -> tuple[float, float, list[int]]:
    """The relative distance of two (heads, size, width) after and before the best permutation of b's heads, and it."""
    from scipy.optimize import linear_sum_assignment

    left, right = a.flatten(1), b.to(a.device).flatten(1)
    squares = torch.cdist(left, right, compute_mode="donot_use_mm_for_euclid_dist").pow(2).cpu()
    _, order = linear_sum_assignment(squares.numpy())
    scale = float(left.pow(2).sum() + right.pow(2).sum()) / 2
    if scale == 0.0:
        return 0.0, 0.0, list(range(len(left)))
    best = float(squares[torch.arange(len(left)), torch.from_numpy(order)].sum())
    return (best / scale) ** 0.5, (float(squares.diagonal().sum()) / scale) ** 0.5, [int(j) for j in order]
