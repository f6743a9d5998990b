"""Second moments of row-aligned views: everything that most similarity measures need, in one pass over any n.

Stack the views (layers of one or several models, one-hot labels) side by side, Z = [X_1 .. X_V]. Kept are the summed
weight, sum Z, and the wanted blocks of Z'Z, all about a shift near the mean, so that a large offset costs no digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from layerscope.errors import InputError
from layerscope.similarity.precision import column_sizes, float64_is_free, rounds_products
from layerscope.team import Team

BLOCK = 8192  # rows per product: small products waste most of the time
Pair = tuple[int, int]


def all_pairs(views: int) -> list[Pair]:
    """Every pair i <= j: the other half is its transpose."""
    return [(i, j) for i in range(views) for j in range(i, views)]


class Moments:
    """n, sums and cross products of row-aligned views, by `update(rows of every view)`.

    Memory does not grow with the rows, and the moments of two sets of rows add up (`merge`).

    Args:
        widths: The number of columns of each view.
        pairs: The pairs of views whose cross products are wanted; all of them if not given. Each view with itself is
            always kept.
        exact: Make the products in float64, which measures that invert a covariance need. Otherwise they are made in
            float32, a few thousand rows at a time, and summed in float64, except on GPUs where float64 costs nothing.
        debiased: Keep the extra sums of debiased CKA.
        device: Where the sums lie.
        block: How many rows are gathered before a product.

    Example:
        >>> import torch, layerscope as ls
        >>> x, y = torch.tensor([[0.0], [2.0]]), torch.tensor([[1.0], [5.0]])
        >>> moments = ls.Moments([1, 1])
        >>> moments.update([x, y])
        >>> moments.n, float(moments.mean(1)), float(moments.scatter(0, 1))
        (2, 3.0, 4.0)
    """

    def __init__(
        self,
        widths: Sequence[int],
        *,
        pairs: Iterable[Pair] | None = None,
        exact: bool = False,
        debiased: bool = False,
        device: torch.device | str = "cpu",
        block: int = BLOCK,
    ) -> None:
        self.widths = tuple(int(w) for w in widths)
        self.device = torch.device(device)
        self.exact = exact or float64_is_free(self.device) or rounds_products(self.device)
        self.debiased = debiased
        views = range(len(self.widths))
        wanted = all_pairs(len(self.widths)) if pairs is None else [(min(p), max(p)) for p in pairs]
        self.pairs = sorted({*wanted, *((i, i) for i in views)})
        self._n = 0
        self.weight = 0.0
        self._block = block
        self._buffer: Tensor | None = None  # (block, all widths): the views of the waiting rows side by side
        self._weights: Tensor | None = None
        self._waiting = 0
        self.shift: list[Tensor] | None = None
        self._sum = [self._zeros(w) for w in self.widths]
        self._product = {(i, j): self._zeros(self.widths[i], self.widths[j]) for i, j in self.pairs}
        # For debiased CKA: sum |x_i|^2 x_j for every ordered pair, and sum |x_i|^2 |x_j|^2.
        ordered = sorted({*self.pairs, *((j, i) for i, j in self.pairs)}) if debiased else []
        self._cubic = {(i, j): self._zeros(self.widths[j]) for i, j in ordered}
        self._quartic = {pair: self._zeros(()) for pair in (self.pairs if debiased else ())}

    @property
    def n(self) -> int:
        """How many rows there have been."""
        return self._n + self._waiting

    def _zeros(self, *shape: Any) -> Tensor:
        return torch.zeros(*shape, dtype=torch.float64, device=self.device)

    def update(self, views: Sequence[Tensor], weights: Tensor | None = None) -> None:
        """More rows: one (k, width) tensor per view, the same k rows in each; `weights` has one weight per row."""
        if len(views) != len(self.widths):
            raise InputError(f"{len(self.widths)} views are needed and {len(views)} were given.")
        rows = len(views[0])
        for i, (view, width) in enumerate(zip(views, self.widths, strict=True)):
            if tuple(view.shape) != (rows, width):
                raise InputError(f"View {i} has shape {tuple(view.shape)} where ({rows}, {width}) is needed.")
        if weights is not None and (len(weights) != rows or bool((weights < 0).any())):
            raise InputError(f"{rows} weights, none below 0, are needed, one per row.")
        start = 0
        while start < rows:
            start += self._take([view[start:] for view in views], None if weights is None else weights[start:])
            if self._waiting == self._block:
                self._flush()

    def _take(self, views: Sequence[Tensor], weights: Tensor | None) -> int:
        """Copy as many rows as there is room for into the buffer; the number of rows that were copied."""
        wide = self.exact or any(view.dtype == torch.float64 for view in views)
        dtype = torch.float64 if wide else torch.float32
        if self._buffer is not None and self._buffer.dtype != dtype and wide:
            self._flush()
            self._buffer = None
        if self._buffer is None:
            self._buffer = torch.empty(self._block, sum(self.widths), dtype=dtype, device=self.device)
        rows = slice(self._waiting, min(self._waiting + len(views[0]), self._block))
        count = rows.stop - rows.start
        for target, view in zip(self._buffer[rows].split(self.widths, dim=1), views, strict=True):
            target.copy_(view.detach()[:count])
        if weights is not None and self._weights is None:
            self._weights = torch.ones(self._block, dtype=torch.float64, device=self.device)
        if self._weights is not None:
            self._weights[rows] = 1.0 if weights is None else weights[:count].to(self.device, torch.float64)
        self._waiting = rows.stop
        return count

    def _flush(self) -> None:
        """Add what is buffered, in one product of many rows."""
        if not self._waiting:
            return
        assert self._buffer is not None
        rows, self._waiting = self._buffer[: self._waiting], 0
        weights = None if self._weights is None else self._weights[: len(rows)]
        if self.shift is None:
            # Rounded to float32, so that a float32 row less its shift loses no digit.
            mean = rows.mean(dim=0, dtype=torch.float64).float().double()
            self.shift = [part.clone() for part in mean.split(self.widths)]
        rows -= torch.cat(self.shift).to(rows.dtype)
        self._add(rows if self.exact else rows.float(), weights)

    def _add(self, rows: Tensor, weights: Tensor | None) -> None:
        moved = list(rows.split(self.widths, dim=1))
        self._n += len(rows)
        self.weight += len(rows) if weights is None else float(weights.sum())
        left = moved if weights is None else [m * weights.to(rows.dtype)[:, None] for m in moved]
        self._sum = [s + m.sum(dim=0, dtype=torch.float64) for s, m in zip(self._sum, left, strict=True)]
        self._add_products(left, rows)
        if self.debiased:
            self._add_higher(moved, weights)

    def _add_products(self, left: list[Tensor], right: Tensor) -> None:
        """One product for each view with all its partners side by side: as fast as one large product."""
        scales = None
        if right.dtype == torch.float32 and (size := column_sizes(right)) is not None:
            scales = [part.double() for part in size.split(self.widths)]
            left = [rows / part for rows, part in zip(left, size.split(self.widths), strict=True)]
            right = right / size
        columns = right.split(self.widths, dim=1)
        starts = [sum(self.widths[:j]) for j in range(len(self.widths) + 1)]
        partners: dict[int, list[int]] = {}
        for i, j in self.pairs:
            partners.setdefault(i, []).append(j)
        for i, others in partners.items():
            first, last = others[0], others[-1]
            adjacent = others == list(range(first, last + 1))  # then they lie side by side already
            joined = (
                right[:, starts[first] : starts[last + 1]] if adjacent else torch.cat([columns[j] for j in others], 1)
            )
            product = left[i].T @ joined
            for j, piece in zip(others, product.split([self.widths[j] for j in others], dim=1), strict=True):
                self._product[i, j] += piece if scales is None else piece.double() * torch.outer(scales[i], scales[j])

    def _add_higher(self, views: list[Tensor], weights: Tensor | None) -> None:
        if weights is not None:
            raise InputError("Debiased CKA is not defined for weighted rows.")
        wide = [v.to(torch.float64) for v in views]
        squares = [w.pow(2).sum(dim=1) for w in wide]
        for i, j in self._cubic:
            self._cubic[i, j] += squares[i] @ wide[j]
        for i, j in self._quartic:
            self._quartic[i, j] += squares[i] @ squares[j]

    def mean(self, i: int) -> Tensor:
        """The (weighted) mean of view i, (width,) in float64."""
        self._need_rows()
        assert self.shift is not None
        return self.shift[i] + self._sum[i] / self.weight

    def scatter(self, i: int, j: int) -> Tensor:
        """sum w (x - mean x)(y - mean y)' of views i and j, (width i, width j) in float64."""
        self._need_rows()
        if (min(i, j), max(i, j)) not in self._product:
            raise InputError(f"The product of views {i} and {j} was not asked for, so it was not kept.")
        product = self._product[i, j] if i <= j else self._product[j, i].T
        return product - torch.outer(self._sum[i], self._sum[j]) / self.weight

    def cov(self, i: int, j: int) -> Tensor:
        """The covariance of views i and j: the scatter over the summed weight."""
        return self.scatter(i, j) / self.weight

    def hsic(self, i: int, j: int) -> float:
        """The unbiased HSIC of linear kernels (Song et al. 2012), times n (n - 3), from the extra sums."""
        self._need_rows()
        if not self.debiased:
            raise InputError("The sums of debiased CKA were not kept; make the moments with debiased=True.")
        first, second = min(i, j), max(i, j)
        product, quartic = self._product[first, second], float(self._quartic[first, second])
        sx, sy = self._sum[first], self._sum[second]
        n = self.n
        trace = float(product.pow(2).sum()) - quartic
        ones = [float(s @ s) - float(torch.trace(self._product[k, k])) for s, k in ((sx, first), (sy, second))]
        crossed = float(sx @ product @ sy) - float(sx @ self._cubic[second, first])
        crossed += -float(sy @ self._cubic[first, second]) + quartic
        return trace + ones[0] * ones[1] / ((n - 1) * (n - 2)) - 2 * crossed / (n - 2)

    def settle(self) -> None:
        """Add the rows that wait, and free the memory that they waited in; more rows may follow."""
        self._flush()
        self._buffer = self._weights = None

    def _need_rows(self) -> None:
        self.settle()
        if not self._n or not self.weight:
            raise InputError("There are no rows yet, so there are no moments.")

    def merge(self, other: Moments) -> Moments:
        """This with the rows of another one added, whatever the two shifts are."""
        return self._combine(other, 1)

    def without(self, other: Moments) -> Moments:
        """New moments: this with the rows of another one, which are among its own, taken out again."""
        return self._empty().merge(self)._combine(other, -1)

    def _empty(self) -> Moments:
        options: dict[str, Any] = {"exact": self.exact, "debiased": self.debiased, "device": self.device}
        return Moments(self.widths, pairs=self.pairs, block=self._block, **options)

    def _combine(self, other: Moments, sign: int) -> Moments:
        same = ("widths", "pairs", "debiased")
        if any(getattr(self, name) != getattr(other, name) for name in same):
            raise InputError("These moments are of different views or pairs and cannot be added.")
        self._flush()
        other._flush()
        if not other._n:
            return self
        if self.shift is None:
            self.shift = [s.to(self.device, copy=True) for s in other.shift or ()]
        moved = other._about(self.shift)
        for name in ("_product", "_cubic", "_quartic"):
            mine = getattr(self, name)
            for key, value in moved[name].items():
                mine[key].add_(value.to(self.device), alpha=sign)
        self._sum = [s + sign * value.to(self.device) for s, value in zip(self._sum, moved["_sum"], strict=True)]
        self._n += sign * other._n
        self.weight += sign * other.weight
        return self

    def reduce(self, team: Team) -> Moments:
        """The moments of the rows of every process in the team, in every process; some may have no rows."""
        if team.size == 1:
            return self
        self._flush()
        own = self._zeros(sum(self.widths)) if self.shift is None else torch.cat(self.shift)
        count = team.add(torch.tensor(float(self.shift is not None), dtype=torch.float64, device=self.device))
        shift = (team.add(own) / count.clamp_min(1)).float().double()  # near the mean is all that it needs to be
        whole = self._empty()
        whole.shift = list(shift.split(self.widths))
        whole.merge(self)
        counts = team.add(torch.tensor([whole._n, whole.weight], dtype=torch.float64, device=self.device))
        whole._n, whole.weight = int(counts[0]), float(counts[1])
        whole._sum = [team.add(s) for s in whole._sum]
        for name in ("_product", "_cubic", "_quartic"):
            mine = getattr(whole, name)
            for key in sorted(mine):
                mine[key] = team.add(mine[key])
        return whole

    def _about(self, shift: Sequence[Tensor]) -> dict[str, Any]:
        """The same moments about another shift: x - s = (x - own shift) + c with c = own shift - s."""
        assert self.shift is not None
        c = [own - s.to(self.device) for own, s in zip(self.shift, shift, strict=True)]
        n, sums = self.weight, self._sum
        product = {
            (i, j): p + torch.outer(sums[i], c[j]) + torch.outer(c[i], sums[j]) + n * torch.outer(c[i], c[j])
            for (i, j), p in self._product.items()
        }
        moved: dict[str, Any] = {"_sum": [s + n * d for s, d in zip(sums, c, strict=True)], "_product": product}
        moved["_cubic"], moved["_quartic"] = {}, {}

        def block(i: int, j: int) -> Tensor:
            return self._product[i, j] if i <= j else self._product[j, i].T

        norms = {i: torch.trace(self._product[i, i]) for i in range(len(self.widths))}
        for i, j in self._cubic:  # sum |x + a|^2 (y + b)
            a, b = c[i], c[j]
            total = norms[i] + 2 * (a @ sums[i]) + n * (a @ a)  # sum |x + a|^2
            moved["_cubic"][i, j] = self._cubic[i, j] + 2 * (a @ block(i, j)) + (a @ a) * sums[j] + total * b
        for i, j in self._quartic:  # sum |x + a|^2 |y + b|^2
            a, b = c[i], c[j]
            square_x = norms[i] + 2 * (a @ sums[i])
            square_y = norms[j] + 2 * (b @ sums[j])
            moved["_quartic"][i, j] = (
                self._quartic[i, j]
                + 2 * (b @ self._cubic[i, j])
                + 2 * (a @ self._cubic[j, i])
                + 4 * (a @ block(i, j) @ b)
                + (b @ b) * square_x
                + (a @ a) * square_y
                + n * (a @ a) * (b @ b)
            )
        return moved

    def save(self, path: str | Path) -> Path:
        """Write the moments as a folder: safetensors and JSON."""
        from layerscope.similarity.moments_file import write

        self._need_rows()
        return write(self, Path(path))

    @staticmethod
    def load(path: str | Path) -> Moments:
        """The moments in a folder that `save` wrote."""
        from layerscope.similarity.moments_file import read

        return read(Path(path))


def product_bytes(widths: Sequence[int], pairs: Iterable[Pair]) -> int:
    """What the products of some pairs of views take in float64."""
    return sum(8 * widths[i] * widths[j] for i, j in pairs)
