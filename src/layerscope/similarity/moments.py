"""Second moments of row-aligned views: all that most similarity measures need, in one pass over any number of rows.

Stack the views (layers of one or several models, one-hot labels) side by side, Z = [X_1 .. X_V]. `Moments` keeps the
summed weight, sum Z and the wanted blocks of Z'Z, all about a shift near the mean, so that a large offset costs no
digits. Products are made in float32 where that loses nothing that matters, from bfloat16 parts where the rows come from
16-bit models and there are tensor cores, and in float64 elsewhere. Moments are saved as a folder of safetensors and
JSON.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field, FiniteFloat
from safetensors.torch import save_file
from torch import Tensor

from layerscope.arguments import checked
from layerscope.distributed import Team
from layerscope.errors import DataError, InputError
from layerscope.store import Saved, atomic_folder, inside, open_tensors, read_object, settled, shaped, write_json

# GPUs whose float64 units are half as fast as their float32 units; elsewhere they are 1/32 or less.
_FULL_FLOAT64 = {(6, 0), (7, 0), (8, 0), (9, 0), (10, 0)}
_SAFE = 1e9  # float32 products of numbers up to this, and down to one over it, lose nothing in sums of many rows


def float64_is_free(device: torch.device) -> bool:
    """Whether products in float64 cost next to nothing on a device: on GPUs made for computing."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) in _FULL_FLOAT64


def rounds_products(device: torch.device) -> bool:
    """Whether float32 products on a device are made from fewer digits (TF32), because torch was told to allow it."""
    return device.type == "cuda" and torch.backends.cuda.matmul.allow_tf32


def has_bfloat16_cores(device: torch.device) -> bool:
    """Whether products of bfloat16 numbers with float32 sums are made by tensor cores on a device."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (8, 0)


def product_of_parts(left: Tensor, right: Tensor) -> Tensor:
    """left' right in float32 of bfloat16 parts (rows, columns) and (rows, other columns)."""
    if left.device.type == "cuda":
        return torch.mm(left.T, right, out_dtype=torch.float32)
    return left.T.float() @ right.float()  # the same numbers, products and sums


def bfloat16_parts(rows: Tensor) -> tuple[Tensor, Tensor]:
    """(rows, columns) float32 rows as the sum of two bfloat16 parts, the small one first."""
    high = rows.bfloat16()
    return (rows - high).bfloat16(), high


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


# A number is the sum of two bfloat16 parts up to 2^-16 of itself: each has 8 digits, and the second is what the first
# leaves. What a column's rows have in common is subtracted before, so that rows that were bfloat16 need two, too; they
# have most of their digits in them. A product of two parts has 16 digits, so float32 holds it exactly, and all four
# products are made: what comes out is the product of rows that are off by at most 2^-16 each, and by random amounts, so
# that sums over rows are off by far less. Tensor cores add 16 or more such products at a time to a float32 sum and may
# cut off its last digit: of 1,024 rows 64 times for the first parts, at most 64 x 2^-23 = 8e-6 of the sum of absolute
# values, if every cut were the largest possible and none went the other way. The second parts come first, while the sum
# is small. Sums of 1,024 rows are added up in float32 (8 of them at most), and those of a block in float64.
_PART_ROWS = 1024

BLOCK = 8192  # rows per product: small products waste most of the time
Pair = tuple[int, int]


def all_pairs(views: int) -> list[Pair]:
    """Every pair i <= j of so many views; the other pairs are their transposes."""
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
        split: Make them from two bfloat16 parts of every number, for tensor cores; not where they are to be exact.
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
        split: bool = False,
        debiased: bool = False,
        device: torch.device | str = "cpu",
        block: int = BLOCK,
    ) -> None:
        self.widths = tuple(int(w) for w in widths)
        self.device = torch.device(device)
        self.split = split and not exact
        self.exact = not self.split and (exact or float64_is_free(self.device) or rounds_products(self.device))
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
        """Float64 zeros on the device of the sums."""
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
        """Add the rows in the buffer to the sums, by one product of many rows."""
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
        """Add rows (k, all widths), from which the shift has been subtracted, to every sum."""
        moved = list(rows.split(self.widths, dim=1))
        self._n += len(rows)
        self.weight += len(rows) if weights is None else float(weights.sum())
        left = rows if weights is None else rows * weights.to(rows.dtype)[:, None]
        sums = left.sum(dim=0, dtype=torch.float64).split(self.widths)
        self._sum = [s + m for s, m in zip(self._sum, sums, strict=True)]
        self._add_products(left, rows)
        if self.debiased:
            self._add_higher(moved, weights)

    def _add_products(self, left: Tensor, right: Tensor) -> None:
        """Add the cross products of (k, all widths) rows: for each view one with all its partners, as fast as one."""
        scales = None
        if right.dtype == torch.float32 and (size := column_sizes(right)) is not None:
            scales = [part.double() for part in size.split(self.widths)]
            left, right = (right / size,) * 2 if left is right else (left / size, right / size)
        starts = [sum(self.widths[:j]) for j in range(len(self.widths) + 1)]
        partners: dict[int, list[int]] = {}
        for i, j in self.pairs:
            partners.setdefault(i, []).append(j)

        def joined(rows: Tensor, others: list[int]) -> Tensor:
            first, last = others[0], others[-1]
            if others == list(range(first, last + 1)):  # they lie side by side already
                return rows[:, starts[first] : starts[last + 1]]
            columns = rows.split(self.widths, dim=1)
            return torch.cat([columns[j] for j in others], 1)

        in_parts = self._products_of_parts(left, right, partners, joined) if self.split else {}
        columns = left.split(self.widths, dim=1)
        for i, others in partners.items():
            product = in_parts.pop(i) if self.split else columns[i].T @ joined(right, others)
            for j, piece in zip(others, product.split([self.widths[j] for j in others], dim=1), strict=True):
                self._product[i, j] += piece if scales is None else piece.double() * torch.outer(scales[i], scales[j])

    def _products_of_parts(
        self,
        left: Tensor,
        right: Tensor,
        partners: dict[int, list[int]],
        joined: Callable[[Tensor, list[int]], Tensor],
    ) -> dict[int, Tensor]:
        """Return the product of each view with all its partners, made of the rows' bfloat16 parts."""
        products: dict[int, Tensor] = {}
        for start in range(0, len(right), _PART_ROWS):
            some = slice(start, start + _PART_ROWS)
            low, high = bfloat16_parts(right[some])
            low_left, high_left = (low, high) if left is right else bfloat16_parts(left[some])
            # One product with four times the rows is all four products of parts.
            mine = torch.cat([low_left, low_left, high_left, high_left]).split(self.widths, dim=1)
            theirs = torch.cat([low, high, low, high])
            for i, others in partners.items():
                product = product_of_parts(mine[i], joined(theirs, others))
                products[i] = products[i].add_(product) if i in products else product
        return products

    def _add_higher(self, views: list[Tensor], weights: Tensor | None) -> None:
        """Add the cubic and quartic sums of debiased CKA."""
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
        """Add the rows that wait, and raise InputError where there are none at all."""
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
        """Moments of the same views and pairs that have no rows."""
        options: dict[str, Any] = {"exact": self.exact, "split": self.split, "debiased": self.debiased}
        options["device"] = self.device
        return Moments(self.widths, pairs=self.pairs, block=self._block, **options)

    def _combine(self, other: Moments, sign: int) -> Moments:
        """Add the rows of other moments to these (sign 1), or take them out (sign -1)."""
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
        # Every process has its own shift; all move to the mean of them, about which their sums can be added. It only
        # has to be near the mean of the rows.
        mine = self._zeros(sum(self.widths)) if self.shift is None else torch.cat(self.shift)
        count = team.all_reduce(torch.tensor(float(self.shift is not None), dtype=torch.float64, device=self.device))
        shift = (team.all_reduce(mine) / count.clamp_min(1)).float().double()
        whole = self._empty()
        whole.shift = list(shift.split(self.widths))
        whole.merge(self)
        counts = team.all_reduce(torch.tensor([whole._n, whole.weight], dtype=torch.float64, device=self.device))
        whole._n, whole.weight = int(counts[0]), float(counts[1])
        whole._sum = [team.all_reduce(s) for s in whole._sum]
        for name in ("_product", "_cubic", "_quartic"):
            sums = getattr(whole, name)
            for key in sorted(sums):
                sums[key] = team.all_reduce(sums[key])
        return whole

    def _about(self, shift: Sequence[Tensor]) -> dict[str, Any]:
        """These sums about another shift s, by name: x - s = (x - t) + c with t the present shift and c = t - s."""
        assert self.shift is not None
        c = [present - s.to(self.device) for present, s in zip(self.shift, shift, strict=True)]
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
        self._need_rows()
        return write(self, Path(path))

    @staticmethod
    @checked
    def load(path: str | Path) -> Moments:
        """The moments in a folder that `save` wrote."""
        return read(Path(path))


def product_bytes(widths: Sequence[int], pairs: Iterable[Pair]) -> int:
    """Bytes of the products of some pairs of views in float64."""
    return sum(8 * widths[i] * widths[j] for i, j in pairs)


FORMAT = 1
_CARD, _TENSORS = "moments.json", "moments.safetensors"
_AGAIN = "make them again"
_PARTS = {"shift": 1, "sum": 1, "product": 2, "cubic": 2, "quartic": 2}  # tensors, and how many views each is of


def write(moments: Moments, path: Path) -> Path:
    """Write moments as a folder, whole or not at all."""
    with atomic_folder(path, _CARD) as folder:
        tensors = {f"shift.{i}": s for i, s in enumerate(moments.shift or ())}
        tensors |= {f"sum.{i}": s for i, s in enumerate(moments._sum)}
        for name in ("product", "cubic", "quartic"):
            tensors |= {f"{name}.{i}.{j}": v for (i, j), v in getattr(moments, f"_{name}").items()}
        save_file({k: v.cpu().contiguous() for k, v in tensors.items()}, folder / _TENSORS)
        card = {"format": FORMAT, "n": moments.n, "weight": moments.weight, "widths": list(moments.widths)}
        write_json(folder / _CARD, card | {"debiased": moments.debiased, "exact": moments.exact})
    return path


class MomentsCard(Saved):
    """The contents of `moments.json`."""

    n: int = Field(ge=0, lt=1 << 60)
    weight: FiniteFloat = Field(ge=0)
    widths: list[Annotated[int, Field(ge=1, lt=1 << 31)]] = Field(min_length=1, max_length=1_000_000)
    debiased: bool
    exact: bool


def read(folder: Path) -> Moments:
    """The moments in a folder that `write` wrote."""
    folder = settled(folder)
    if not (folder / _CARD).exists():
        raise DataError(f"{folder} holds no readable moments: there is no {_CARD} in it.")
    raw = read_object(inside(folder, _CARD), way_out=_AGAIN)
    if raw.get("format") != FORMAT:
        raise DataError(f"{folder} is in format {str(raw.get('format'))[:40]}; this version reads format {FORMAT}.")
    try:
        card = shaped(raw, MomentsCard)
        file = open_tensors(inside(folder, _TENSORS), way_out=_AGAIN)
        names = {name: _key(name, len(card.widths)) for name in file.names}
    except DataError:
        raise
    except ValueError as error:
        raise DataError(f"The moments in {folder} are damaged ({error}); {_AGAIN}.") from error
    for name, key in names.items():
        file.require({name: _shape(name, [card.widths[i] for i in key])})
        if file.dtype(name) != "F64":
            raise DataError(f"The moments in {folder} are damaged ({name} holds {file.dtype(name)}); {_AGAIN}.")
        file.finite(name, name)
    wanted = {f"{kind}.{i}": (width,) for kind in ("shift", "sum") for i, width in enumerate(card.widths)}
    file.require({**wanted, **{f"product.{i}.{i}": (width, width) for i, width in enumerate(card.widths)}})
    pairs = [key for name, key in names.items() if name.startswith("product")]
    moments = Moments(card.widths, pairs=pairs, exact=card.exact, debiased=card.debiased)  # type: ignore[arg-type]
    moments._n, moments.weight = card.n, card.weight
    moments.shift = [file.tensor(f"shift.{i}") for i in range(len(moments.widths))]
    moments._sum = [file.tensor(f"sum.{i}") for i in range(len(moments.widths))]
    for kind in ("product", "cubic", "quartic"):
        sums = getattr(moments, f"_{kind}")
        if sums.keys() != {key for name, key in names.items() if name.startswith(f"{kind}.")}:
            raise DataError(
                f"The moments in {folder} are damaged (its {kind} sums are not those of its pairs); {_AGAIN}."
            )
        sums.update({key: file.tensor(f"{kind}.{key[0]}.{key[1]}") for key in sums})
    return moments


def _key(name: str, views: int) -> tuple[int, ...]:
    """The views that a tensor in the file is of, by its name."""
    kind, *parts = name.split(".")
    if _PARTS.get(kind) != len(parts) or not all(p.isdecimal() and p.isascii() and len(p) < 8 for p in parts):
        raise ValueError(f"it holds a tensor {name[:40]!a}")
    key = tuple(map(int, parts))
    if any(i >= views for i in key):
        raise ValueError(f"{name} is of a view that there is not")
    return key


def _shape(name: str, widths: list[int]) -> tuple[int, ...]:
    """The shape that a tensor of this name must have, for the widths of its views."""
    kind = name.split(".", maxsplit=1)[0]
    return () if kind == "quartic" else (widths[-1],) if kind == "cubic" else tuple(widths)
