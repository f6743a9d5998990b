"""Made-up records with every kind of figure, for tests of records, of the report and of figures for papers."""

from __future__ import annotations

import json
import math

import numpy as np

from layerscope.drawing.figure import HeatmapAxis
from layerscope.drawing.figures.bars import BarsFigure
from layerscope.drawing.figures.box import BoxFigure
from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.drawing.figures.grid import (
    BOX,
    CELL,
    FIT,
    LEVEL,
    LINE,
    POINT,
    REASON,
    RIGHT,
    X_TICK,
    Y_TICK,
    GridFigure,
    Item,
)
from layerscope.drawing.figures.heatmap import HeatmapFigure
from layerscope.drawing.figures.scatter import Point, ScatterFigure
from layerscope.drawing.figures.table import TableFigure
from layerscope.drawing.render import crosses, lines_drawn
from layerscope.results import Finding, Record

SCRIPT = "<script>alert(1)</script>"
FIGURE_WORDS = {"shows": "What is drawn.", "reading": "How it is read.", "caveat": "What to keep in mind."}


def layer_heatmap(models=("base", "tuned"), layers=7, measure="cka", seed=0, **changes) -> HeatmapFigure:
    """Blocks of like layers, layer 0 undefined, with intervals."""
    side = HeatmapAxis(
        "model and layer",
        tuple(m for m in models for _ in range(layers)),
        tuple(str(k) for _ in models for k in range(layers)),
    )
    place = np.asarray([k for _ in models for k in range(layers)])
    noise = np.random.default_rng(seed).normal(0, 0.02, (len(side), len(side)))
    values = np.clip(np.exp(-np.abs(place[:, None] - place[None]) / 3) + noise, 0, 1)
    reasons = {}
    for i, j in np.argwhere((place[:, None] == 0) | (place[None] == 0)):
        values[i, j] = np.nan
        reasons[int(i), int(j)] = "every row is the same, so nothing varies"
    given = {
        "title": f"Similarity of layers: {measure}",
        **FIGURE_WORDS,
        "group": "Similarity of layers",
        "facets": {"measure": measure},
        "values": values,
        "rows": side,
        "columns": side,
        "value_name": measure,
        "scale": (0.0, 1.0),
        "low": values - 0.05,
        "high": values + 0.05,
        "reasons": reasons,
        "n": 872,
    }
    return HeatmapFigure(**{**given, **changes})


def record_of_every_kind(name: str = "base") -> Record:
    """A run with every kind of figure; `name` is that of a model and stands wherever names stand."""
    layers = tuple(float(k) for k in range(7))
    rise = tuple(0.5 + 0.06 * k for k in layers)
    band = tuple(v - 0.03 for v in rise), tuple(v + 0.03 for v in rise)
    others = tuple(0.6 + 0.03 * k for k in layers[:-1])
    curves = (Series(name, layers, rise, *band), Series("other", layers, (float("nan"), *others)))
    points = tuple(Point(k / 10, 0.5 + k / 25, f"blocks 1-{k}", "candidates") for k in range(1, 10))
    chosen = Point(0.6, 0.9, f"blocks of {name}", "chosen", 0.85, 0.95)
    figures = [
        layer_heatmap((name, "tuned")),
        layer_heatmap((name, "tuned"), measure="svcca", seed=1),
        CurveFigure(
            title=f"Curve of {name}",
            **FIGURE_WORDS,
            series=curves,
            x_name="layer",
            y_name="accuracy",
            references=(("most frequent class", 0.51),),
            marks=(("layer 4", 4.0),),
            n=100,
        ),
        BoxFigure(
            title="Boxes", **FIGURE_WORDS, boxes={name: (0.8, 0.82, 0.85, 0.9), "two": (0.7, 0.71)}, y_name="accuracy"
        ),
        BarsFigure(
            title="Bars",
            **FIGURE_WORDS,
            names=(name, "b"),
            values=(0.3, 0.6),
            low=(0.2, 0.5),
            high=(0.4, 0.7),
            y_name="share",
            references=(("chance", 0.5),),
        ),
        ScatterFigure(
            title="Scatter",
            **FIGURE_WORDS,
            points=(*points, chosen),
            x_name="cost",
            y_name="score",
            joined=("candidates",),
            stressed=("chosen",),
        ),
        panels(name),
        TableFigure.from_records(
            [
                {"model": name, "score": 0.9, "n": 12, "kept": True},
                {"model": "b", "score": None, "n": 1200, "kept": False},
            ],
            title="Table",
            shows="Numbers.",
            reading="Sort them.",
        ),
    ]
    return Record(
        kind="compare",
        title=f"A record of {name}",
        figures=figures,
        findings=[Finding(f"The finding is {name}.", f"the evidence is {name}", True)],
        command=f"layerscope compare '{name}'",
        models=[{"name": name, "class": "BertModel", "blocks": 6, "weights": "ab" * 16}],
        data={"task": name, "split": "validation", "fingerprint": "cd" * 16, "n": 872},
        settings={"pool": "cls", "seed": 0},
        versions={"layerscope": "0.2.0", "torch": "2.13.0"},
        created="2026-11-15T12:00:00+00:00",
        seconds=12.5,
    )


def panels(name: str = "base") -> GridFigure:
    """A panel with every kind of item, and one that is empty."""
    heat = [Item(0, 0, CELL, x=x, y=y, value=x * y / 4) for x in range(3) for y in range(2)]
    heat += [Item(0, 0, CELL, x=0, y=2, label="nothing varies"), Item(0, 0, CELL, x=1, y=2, value=0.5)]
    heat += [Item(0, 0, X_TICK, name, x=x, label=str(x)) for x in range(3)]
    heat += [Item(0, 0, Y_TICK, model, x=y, label=str(y)) for y, model in enumerate((name, name, "other"))]
    lines = [Item(0, 1, LINE, "nu", x=x, y=x / 2, low=x / 2 - 0.1, high=x / 2 + 0.1) for x in range(4)]
    lines += [Item(0, 1, LINE, "probe", x=x, y=1 - x / 4, label=RIGHT) for x in range(4)]
    lines += [Item(0, 1, LEVEL, "most frequent class", y=0.5)]
    points = [
        Item(1, 0, POINT, "strategy", x=x, y=x, low=x - 0.1, high=x + 0.1, label=f"({x}, 4, 4)") for x in range(3)
    ]
    points += [Item(1, 0, FIT, "fitted line", x=x, y=x, label="rho = 1") for x in (0, 2)]
    boxes = [Item(1, 1, BOX, method, x=x, y=x + k / 9) for method in (name, "inn") for x in (1, 2) for k in range(4)]
    return GridFigure(
        title=f"Panels of {name}",
        **FIGURE_WORDS,
        row_names=(name, "b"),
        column_names=("sst2", "mrpc", "rte"),
        items=(*heat, *lines, *points, *boxes, Item(0, 2, REASON, label="rte: it is not here"), Item(1, 2, REASON)),
        x_name="layer",
        y_name="score",
        right_name="probe",
        value_name="CKA",
        scale=(0.0, 1.0),
    )


def degenerate_record() -> Record:
    """Figures with next to nothing in them."""
    nan = float("nan")
    one = HeatmapAxis("layer", ("m",), ("0",))
    axes = {"x_name": "x", "y_name": "y"}
    figures = [
        layer_heatmap(("m",), 1, group="", title="one undefined cell"),
        layer_heatmap(group="", values=np.full((1, 1), 0.5), rows=one, columns=one, low=None, high=None, reasons={}),
        CurveFigure(title="one point", **FIGURE_WORDS, series=(Series("a", (3.0,), (0.5,)),), **axes),
        CurveFigure(title="no value", **FIGURE_WORDS, series=(Series("a", (0.0, 1.0), (nan, nan)),), **axes),
        CurveFigure(title="level", **FIGURE_WORDS, series=(Series("a", (0.0, 1.0), (2.0, 2.0)),), **axes),
        BoxFigure(
            title="few", **FIGURE_WORDS, boxes={"one": (0.5,), "none": (nan,), "same": (1.0, 1.0, 1.0)}, y_name="y"
        ),
        BarsFigure(title="signs", **FIGURE_WORDS, names=("up", "down", "no"), values=(1.0, -2.0, nan), y_name="y"),
        BarsFigure(title="zero", **FIGURE_WORDS, names=("zero",), values=(0.0,), y_name="y", references=(("no", nan),)),
        ScatterFigure(
            title="one", **FIGURE_WORDS, points=(Point(1.0, 1.0, "p", "s"), Point(nan, 1.0, "q", "s")), **axes
        ),
        TableFigure.from_records([], title="empty", **FIGURE_WORDS),
    ]
    return Record(kind="none", title="Next to nothing", figures=figures)


def large_study(tasks: int = 12, models: int = 3, layers: int = 25) -> list[Record]:
    """What a study of many tasks gives: tasks x models x four pictures, one record per task, with intervals."""
    pictures = ("ORIG-ORIG", "FT-ORIG", "FT-FT", "FT[1]-FT[2]")
    runs = []
    for t in range(tasks):
        found = []
        for m in range(models):
            for k, picture in enumerate(pictures):
                facets = {"model": f"model-{m}", "picture": picture}
                names = (f"model-{m}",)
                title = f"task-{t}, model-{m}: {picture}"
                found.append(layer_heatmap(names, layers, seed=97 * t + 7 * m + k, facets=facets, title=title))
        # three of the pictures stand alone, so that many heat maps are on the page besides those that take turns
        alone = [
            layer_heatmap((f"model-{m}",), layers, seed=t, group="", title=f"task-{t}: {m}") for m in range(models)
        ]
        runs.append(Record(kind="compare", title=f"task-{t}", figures=[*found, *alone]))
    return runs


def same_data(a, b):
    """Equal, NaN being equal to NaN."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same_data, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same_data(a[k], b[k]) for k in a)
    return a == b


def assert_same_figure(first, second):
    assert type(first) is type(second)
    assert first.words() == second.words()
    assert json.loads(json.dumps(first.settings())) == json.loads(json.dumps(second.settings()))
    assert same_data(first.data(), second.data())


def drawn_texts(canvas) -> list[tuple[str, tuple[float, float, float, float]]]:
    """Every text that matplotlib really draws of a figure, with its box in pixels: left, bottom, right, top."""
    from unittest.mock import patch

    from matplotlib.text import Text

    found, plain_draw = [], Text.draw

    def draw(text, renderer, *args, **kwargs):
        if text.get_visible() and text.get_text().strip():
            box = Text.get_window_extent(text, renderer)  # of an annotation without what it points at
            found.append((text.get_text(), (box.x0, box.y0, box.x1, box.y1)))
        return plain_draw(text, renderer, *args, **kwargs)

    with patch.object(Text, "draw", draw):
        canvas.canvas.draw()
    return found


def faults_of_texts(canvas) -> list[str]:
    """Which texts of a figure leave it, cover one another by more than half a point, or have a line through them."""
    texts, half = drawn_texts(canvas), 0.5 * canvas.dpi / 72
    width, height = canvas.bbox.width, canvas.bbox.height
    faults = [
        f"{text!r} is cut"
        for text, (left, bottom, right, top) in texts
        if left < -half or bottom < -half or right > width + half or top > height + half
    ]
    for k, (text, box) in enumerate(texts):
        for other, beside in texts[k + 1 :]:
            wide = min(box[2], beside[2]) - max(box[0], beside[0])
            high = min(box[3], beside[3]) - max(box[1], beside[1])
            if wide > half and high > half:
                faults.append(f"{text!r} covers {other!r}")
    for ax in canvas.axes:
        frame = (ax.bbox.x0 + half, ax.bbox.y0 + half, ax.bbox.x1 - half, ax.bbox.y1 - half)
        for text, box in texts:
            # What of the text lies in the axes, beyond which no line is drawn, without the air around its letters.
            inner = [max(box[k] + half, frame[k]) for k in (0, 1)] + [min(box[k] - half, frame[k]) for k in (2, 3)]
            if inner[0] < inner[2] and inner[1] < inner[3] and any(crosses(line, inner) for line in lines_drawn(ax)):
                faults.append(f"a line passes through {text!r}")
    return faults
