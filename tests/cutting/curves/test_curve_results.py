"""The pictures of the truncation curve and the skip map."""

import pytest

import layerscope as ls
from tests.helpers.data import labelled_frame
from tests.helpers.models import random_classifier


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_figures(ending, tmp_path):
    opened = random_classifier("bert")
    curve, spans = ls.truncation_curve(opened, labelled_frame()), ls.skip_map(opened, labelled_frame())
    drawn = ls.Truncation.together({"a": curve, "b": curve}).plot(tmp_path / f"curve.{ending}")
    assert {line.get_label() for line in drawn.lines} - {"_empty"} == {
        *("a", "b", "most frequent class", "cannot be told from the whole model"),
    }
    assert drawn.get_legend().get_texts()[0].get_text() == "cannot be told from the whole model"
    assert [text.get_text() for text in drawn.texts] == ["a", "b", "most frequent class"]  # named in the picture
    axes = spans.plot(tmp_path / f"map.{ending}")
    spans = spans.frame
    assert axes.get_legend().get_texts()[0].get_text() == "cannot be told from the whole model"
    image = axes.images[0].get_array()
    assert image[2, 0] == spans[(spans["first"] == 1) & (spans["last"] == 3)]["score"].iloc[0]
    assert image.mask[0, 2]
    assert all((tmp_path / f"{name}.{ending}").stat().st_size > 1000 for name in ("curve", "map"))
