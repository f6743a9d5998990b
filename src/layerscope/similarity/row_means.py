"""Measures that are a mean over rows of a value of the same row in two views: their sums, in one pass over any n."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from layerscope.distributed import Team
from layerscope.errors import InputError
from layerscope.similarity.execution_plan import Views
from layerscope.similarity.registry import Measure, Undefined

_AT_ONCE = 1 << 20  # numbers that a CPU's cache holds: of the views' rows, or of the values of their pairs
_LARGER = 32  # times as many on a GPU, which would wait for small portions


def unit_rows(rows: Tensor) -> tuple[Tensor, Tensor]:
    """(.., d) rows scaled to length 1 in float64, and (..) whether a row has a direction; one of zeros has none.

    Rows in float64 are brought near 1 by their own largest number first, so that those of any scale keep their digits;
    the squares of all others fit.
    """
    wide = rows.double()
    if rows.dtype == torch.float64:
        largest = wide.abs().amax(dim=-1, keepdim=True)
        wide = wide / torch.where(largest > 0, largest, 1.0)
    length = torch.linalg.vector_norm(wide, dim=-1, keepdim=True)
    defined = length > 0
    return wide / torch.where(defined, length, 1.0), defined.squeeze(-1)


class RowSums:
    """For every row view and every column view of one width: the sums of some measures' values of single rows.

    Sums of two sets of rows add up, so groups of texts and processes have theirs.

    Args:
        measures: Measures that need sums.
        widths: The number of columns of every view.
        rows: The views along the rows of the result.
        columns: Those along its columns.
        device: Where the sums lie.
    """

    def __init__(
        self,
        measures: Sequence[Measure],
        widths: Sequence[int],
        rows: Sequence[int],
        columns: Sequence[int],
        device: torch.device | str = "cpu",
    ) -> None:
        self.measures = list({m.name: m for m in measures}.values())  # one that is asked for twice counts once
        self.widths, self.device = widths, torch.device(device)
        self.rows, self.columns = list(rows), list(columns)
        self.views = sorted({*rows, *columns})
        self.n = 0
        shape = len(self.rows), len(self.columns)
        self._defined = torch.zeros(shape, dtype=torch.float64, device=self.device)  # rows with a value
        self._total = {m.name: torch.zeros_like(self._defined) for m in self.measures}

    @staticmethod
    def for_views(measures: Sequence[Measure], views: Views, device: torch.device | str = "cpu") -> RowSums:
        """Empty sums for the pairs of views that a comparison wants."""
        return RowSums(measures, views.widths, views.row_views, views.column_views, device)

    def update(self, rows: Mapping[int, Tensor] | Sequence[Tensor]) -> None:
        """Add rows: (k, width) of every view, the same k rows in all of them."""
        count = len(rows[self.views[0]])
        self.n += count
        for width in sorted({self.widths[view] for view in self.rows}):
            down = [place for place, view in enumerate(self.rows) if self.widths[view] == width]
            across = [place for place, view in enumerate(self.columns) if self.widths[view] == width]
            if not across:
                continue
            room = _AT_ONCE * (1 if self.device.type == "cpu" else _LARGER)
            step = 1 + room // max((len(down) + len(across)) * width, len(down) * len(across))
            for start in range(0, count, step):
                self._add(rows, down, across, slice(start, start + step))

    def _add(self, rows: Any, down: list[int], across: list[int], part: slice) -> None:
        """Add some rows for the row views at `down` and the column views at `across`, all of one width."""
        left_views, right_views = [self.rows[k] for k in down], [self.columns[k] for k in across]
        left, left_defined = self._stacked(rows, left_views, part)
        same = left_views == right_views
        right, right_defined = (left, left_defined) if same else self._stacked(rows, right_views, part)
        cosines = (left @ right.mT).clamp_(-1.0, 1.0)  # (k, down, across)
        defined = left_defined[:, :, None] & right_defined[:, None, :]
        at = torch.tensor(down, device=self.device)[:, None], torch.tensor(across, device=self.device)[None]
        self._defined[at] += defined.sum(dim=0)
        for m in self.measures:
            values = m.compute(left, right, cosines)
            self._total[m.name][at] += torch.where(defined, values, 0.0).sum(dim=0)

    def _stacked(self, rows: Any, views: list[int], part: slice) -> tuple[Tensor, Tensor]:
        """(k, views, width) unit rows, and (k, views) whether they are defined."""
        return unit_rows(torch.stack([rows[view][part].to(self.device) for view in views], dim=1))

    def value(self, name: str, i: int, j: int) -> float:
        """The mean over rows of a measure for a row view and a column view; raises Undefined with the reason."""
        if self.widths[i] != self.widths[j]:
            raise Undefined(
                f"the layers have {self.widths[i]} and {self.widths[j]} columns, and only rows of one width have an "
                "angle between them"
            )
        place = self.rows.index(i), self.columns.index(j)
        missing = self.n - int(self._defined[place])
        if missing:
            raise Undefined(f"{missing:,} of {self.n:,} rows are 0 in one of the layers, so they have no direction")
        if not self.n:
            raise Undefined("there are no rows")
        return float(self._total[name][place]) / self.n

    def merge(self, other: RowSums, sign: int = 1) -> RowSums:
        """New sums: these with the rows of others added, or (sign -1) taken out again."""
        whole = RowSums(self.measures, self.widths, self.rows, self.columns, self.device)
        whole.n = self.n + sign * other.n
        whole._defined = self._defined + sign * other._defined
        whole._total = {name: total + sign * other._total[name] for name, total in self._total.items()}
        return whole

    def reduce(self, team: Team) -> None:
        """Add up the sums of all processes, in every process; they are then on the CPU."""
        count = torch.tensor(float(self.n), dtype=torch.float64, device=self.device)
        self.n = int(team.all_reduce(count))
        self._defined = team.all_reduce(self._defined).cpu()
        self._total = {name: team.all_reduce(total).cpu() for name, total in self._total.items()}
        self.device = torch.device("cpu")


def check_widths(measures: Sequence[Measure], views: Views) -> None:
    """Raise InputError where measures of rows of one width have no pair of layers to be measured on."""
    if not measures or any(views.widths[i] == views.widths[j] for i, j in views.pairs):
        return
    down, across = (
        " and ".join(str(width) for width in sorted({views.widths[view] for view in side}))
        for side in (views.row_views, views.column_views)
    )
    raise InputError(
        f"{measures[0].name} compares layers of one width, and these have {down} columns on one side and {across} on "
        "the other; cka and svcca, among others, take layers of any widths."
    )
