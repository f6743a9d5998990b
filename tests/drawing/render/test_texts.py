"""No text of a figure is cut or covers another one, at the widths of one and of two columns of a page."""

import numpy as np
import pytest

from layerscope.drawing.figure import HeatmapAxis
from layerscope.drawing.figures.bars import BarsFigure
from layerscope.drawing.figures.box import BoxFigure
from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.drawing.figures.heatmap import HeatmapFigure
from layerscope.drawing.figures.scatter import Point, ScatterFigure
from layerscope.drawing.render import draw, draw_panels
from layerscope.registry import FIGURES
from tests.helpers.figures import FIGURE_WORDS as WORDS
from tests.helpers.figures import faults_of_texts, layer_heatmap, record_of_every_kind

LONG = (
    *("bge-small-en-v1.5-tuned-on-sst2", "distilbert-base-uncased-finetuned-sst-2-english", "roberta-large-mnli"),
    *("a", "SmolLM2-135M-Instruct, healed"),
)
LAYERS = tuple(map(float, range(13)))
COLUMN, PAGE = 85 / 25.4, 175 / 25.4  # inches


def curves(names, **more):
    series = []
    for k, name in enumerate(names):
        rise = np.asarray(LAYERS) * 0.03 * (1 - k / 20) + 0.5
        series.append(Series(name, LAYERS, tuple(rise), tuple(rise - 0.03), tuple(rise + 0.03)))
    names = {"x_name": "layer", "y_name": "accuracy", **more}
    return CurveFigure(
        title="Curves of accuracy over the layers of every model", **WORDS, series=tuple(series), **names
    )


def candidates(count, stressed=()):
    points = [
        Point(
            0.5 + k / 40, 0.5 + (k % 7) / 14, f"blocks 1-{k}, {k + 3}-30 (angular, random)", ("front", "other")[k % 2]
        )
        for k in range(count)
    ]
    chosen = Point(0.7, 0.9, "blocks 1-12 (angular)", "chosen", 0.85, 0.95)
    names = {"x_name": "multiply-adds, share of the whole model", "y_name": "perplexity on rows that did not choose"}
    references = (("the whole model", 0.92),)
    return ScatterFigure(
        title="Cost", **WORDS, points=(*points, chosen), **names, stressed=stressed, references=references
    )


def head_map():
    sides = [HeatmapAxis(f"attention heads of layer {k}, {LONG[1]}", ("",) * 12, LABELS) for k in (3, 5)]
    return HeatmapFigure(
        title="Heads", **WORDS, values=np.eye(12), rows=sides[0], columns=sides[1], value_name="js", scale=(0.0, 1.0)
    )


def wide_map():
    first = HeatmapAxis("first block that is left out of the model", ("m",) * 3, ("1", "2", "3"))
    last = HeatmapAxis("last block left out", ("m",) * 12, LABELS)
    name = "accuracy without the span of blocks, nothing trained"
    values = np.full((3, 12), 0.5)
    return HeatmapFigure(
        title="Spans", **WORDS, values=values, rows=first, columns=last, value_name=name, scale=(0.0, 1.0)
    )


LABELS = tuple(map(str, range(12)))
FIGURES_DRAWN = {
    "two models": layer_heatmap(("base", "tuned")),
    "one model of 30 blocks": layer_heatmap(("m",), 31),
    "three models": layer_heatmap(LONG[:3], 13),
    "five models": layer_heatmap(LONG, 13),
    "four models of 24 blocks": layer_heatmap(("bert", "bert-2", "roberta", "x"), 25),
    "heads": head_map(),
    "a wide map": wide_map(),
    "two curves": curves(
        LONG[:2],
        x_name="layer whose output the head reads, counted from the embedding",
        y_name="perplexity on rows that did not choose, nothing trained",
        references=(("most frequent class", 0.51), ("the whole model", 0.88)),
        marks=(("layer 4", 4.0), ("layer 5, the middle one", 5.0)),
    ),
    "five curves": curves(LONG),
    "eight curves": curves([f"strategy {k}" for k in range(8)]),
    "twelve curves": curves([f"strategy number {k} of many" for k in range(12)]),
    "no room for names": curves(["m"], references=tuple((f"reference {k}", 0.6 + k / 200) for k in range(9))),
    "bars": BarsFigure(
        title="Bars",
        **WORDS,
        names=(*LONG, "a rather long name of a strategy with (l*-2, l*, L) and more"),
        values=(0.1, 0.2, 0.3, 0.4, 0.5, 0.6),
        y_name="how much of the loss comes back, as a share of what the cut costs",
        references=(("chance level of the task", 0.5),),
    ),
    "one bar": BarsFigure(
        title="Score", **WORDS, names=("m",), values=(0.1,), y_name="accuracy", references=(("a class", 0.5),)
    ),
    "boxes": BoxFigure(
        title="Boxes", **WORDS, boxes=dict.fromkeys(LONG, (0.8, 0.82, 0.9)), y_name="accuracy of five seeds"
    ),
    "candidates": candidates(20, ("chosen",)),
    "few candidates": candidates(7),
    "lines of neighbouring layers": curves(
        ["PRESS"], marks=(("recommended: 11", 11.0), ("l* by nu: 12", 12.0)), references=(("permuted labels", 0.6),)
    ),
    "a point on its line": ScatterFigure(
        title="Cost",
        **WORDS,
        points=(
            Point(1.0, 0.8, "the whole model", "the whole model", 0.6, 0.98),
            *(Point(1 - k / 20, 0.8 - k / 40, f"without {k}", "candidates", 0.5, 0.9) for k in range(1, 12)),
        ),
        x_name="latency",
        y_name="accuracy",
        stressed=("the whole model",),
        references=(("the whole model", 0.8),),
    ),
}


def test_every_kind_is_drawn():
    assert {figure.kind for figure in FIGURES_DRAWN.values()} == set(FIGURES) - {
        "table",
        "grid",
    }  # of type, and of a page


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("width", [COLUMN, PAGE], ids=["85mm", "175mm"])
@pytest.mark.parametrize("name", FIGURES_DRAWN)
def test_no_text_is_cut_or_covered(name, width):
    canvas = draw(FIGURES_DRAWN[name], width=width, title=width == COLUMN).figure
    assert faults_of_texts(canvas) == []
    assert canvas.get_size_inches()[0] == pytest.approx(width)
    assert all(ax.bbox.height > 0.3 * canvas.dpi for ax in canvas.axes)  # something is left of the picture


def test_names_are_whole():
    canvas = draw(FIGURES_DRAWN["five curves"], width=COLUMN).figure
    shown = " ".join(text.get_text() for text in canvas.axes[0].get_legend().get_texts()).split()
    assert "".join(shown) == "".join("".join(LONG).split())
    (name,) = draw(curves(["a short one", "b"]), width=PAGE).texts[:1]
    assert name.get_text() == "a short one"


def test_the_checker_sees_what_is_cut_and_what_is_covered():
    ax = draw(curves(["m"]), width=COLUMN, title=False)
    ax.text(0.7, 0.2, "one", transform=ax.transAxes)
    ax.text(0.7, 0.2, "other", transform=ax.transAxes)
    ax.text(0.9, 0.1, "a very long text beyond the edge", transform=ax.transAxes).set_in_layout(False)
    assert faults_of_texts(ax.figure) == ["'a very long text beyond the edge' is cut", "'one' covers 'other'"]


def test_panels_beside_one_another_do_not_cover_one_another():
    figures = record_of_every_kind("a rather long name of a model").figures[2:6]
    assert faults_of_texts(draw_panels(figures)[0].figure) == []


def test_the_checker_sees_a_line_through_a_text():
    ax = draw(curves(["m"]), width=COLUMN, title=False)
    ax.text(0.5, 0.5, "one", transform=ax.transAxes, ha="center")
    ax.plot([0.5, 0.5], [0.1, 0.9], transform=ax.transAxes)
    assert faults_of_texts(ax.figure) == ["a line passes through 'one'"]


def test_a_name_of_a_line_and_its_point_stands_once():
    canvas = draw(FIGURES_DRAWN["a point on its line"], width=COLUMN).figure
    inside = [text.get_text() for ax in canvas.axes for text in ax.texts]
    assert inside.count("the whole model") == 1
