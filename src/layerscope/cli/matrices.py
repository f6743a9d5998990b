"""How a matrix of layers is printed: whole where it can be read, else a summary that says where the whole is."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.cli.output import Column, Format, fits, show

if TYPE_CHECKING:
    import numpy as np

    from layerscope.similarity.similarity import Similarity

MOST_COLUMNS = 12  # layers across; of more a line cannot be read
MOST_ROWS = 48  # layers down, of a summary


def readable(rows: Sequence[dict[str, Any]]) -> bool:
    """Whether a matrix is narrow enough to be printed whole."""
    if len(rows[0]) - 1 > MOST_COLUMNS:
        return False
    return not sys.stdout.isatty() or fits([Column(name, [row[name] for row in rows]) for name in rows[0]])


def rows_of(similarity: Similarity, values: np.ndarray) -> list[dict[str, Any]]:
    """Layers by layers, one row per layer."""
    return [
        {"layer": row, **{column: float(v) for column, v in zip(similarity.columns, line, strict=True)}}
        for row, line in zip(similarity.rows, values, strict=True)
    ]


def summary(similarity: Similarity) -> list[dict[str, Any]]:
    """One row per layer: which layer across is most alike and which least, and the mean. A layer is not set beside
    itself. Undefined values are left out; a row without any has none."""
    import numpy as np

    values = np.asarray(similarity.values, dtype=float).copy()
    if similarity.row_axis == similarity.column_axis:
        np.fill_diagonal(values, np.nan)
    told = []
    for k, name in enumerate(similarity.rows):
        line = values[k]
        row: dict[str, Any] = {"layer": name, "most alike": None, "value": None, "least alike": None}
        row |= {"least": None, "mean": None, "undefined": int(np.isnan(np.asarray(similarity.values)[k]).sum())}
        if np.isfinite(line).any():
            low, high = int(np.nanargmin(line)), int(np.nanargmax(line))
            near, far = (low, high) if similarity.distance else (high, low)
            row |= {"most alike": similarity.columns[near], "value": float(line[near])}
            row |= {"least alike": similarity.columns[far], "least": float(line[far]), "mean": float(np.nanmean(line))}
        told.append(row)
    if not any(row["undefined"] for row in told):
        told = [{name: value for name, value in row.items() if name != "undefined"} for row in told]
    return told


def chosen_rows(count: int, most: int = MOST_ROWS) -> list[int]:
    """Which rows of many are printed: the first, the last, and as many between at even distances."""
    if count <= most:
        return list(range(count))
    return sorted({round(k * (count - 1) / (most - 1)) for k in range(most)})


def show_summary(similarity: Similarity, title: str, out: Path | None) -> None:
    """Print the summary, and where every value is."""
    told = summary(similarity)
    shown = chosen_rows(len(told))
    heading = f"{title}; a summary, one row per layer"
    if len(shown) < len(told):
        heading += f", {len(shown)} of {len(told)} layers"
    show([told[k] for k in shown], Format.table, heading)
    count = f"{similarity.values.size:,}"
    name = similarity.measure
    if out is None:
        where = f"-o FOLDER writes all {count} values as {name}.csv and {name}.parquet, --format json prints them"
    else:
        where = f"all {count} values are in {out / f'{name}.csv'} and {name}.parquet"
    print(f"{where[0].upper()}{where[1:]}.")
