"""A notebook shows a picture once: at the end of its cell, in a loop, and as the value of a later cell."""

import pytest

from layerscope.drawing.notebook import new_canvas

CURVE = """import numpy as np, layerscope as ls
curve = ls.Curve("nu", ["model"] * 3, [0, 1, 2], np.array([2.0, 1.0, 1.5]))
ax = curve.plot()
ax.set_title("changed afterwards")
curve.plot()"""
CELLS = [
    CURVE,
    "ax",
    "for _ in range(3):\n    curve.plot()",
    "curve.plot('nu.png')",
    "curve",
    "import matplotlib.pyplot as plt\nfigure, own = plt.subplots()\ncurve.plot(ax=own);",
]


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """The kinds of what each cell shows, below one another."""
    nbclient = pytest.importorskip("nbclient", reason="the docs extra is not installed")
    import nbformat

    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(text) for text in CELLS])
    folder = tmp_path_factory.mktemp("notebook")
    nbclient.NotebookClient(made, timeout=120, resources={"metadata": {"path": str(folder)}}).execute()
    # What a notebook shows of an output is the richest of its forms.
    kinds = ("text/html", "image/png", "text/plain")
    return [[next(kind for kind in kinds if kind in output["data"]) for output in cell.outputs] for cell in made.cells]


def test_a_picture_is_shown_once(outputs):
    assert outputs[0] == ["image/png"] * 2  # two plots, the second the cell's value
    assert outputs[1] == ["image/png"]  # axes of an earlier cell are their picture, as they are now
    assert outputs[2] == ["image/png"] * 3
    assert outputs[3] == ["image/png"]  # written to a file, and the cell's value
    assert outputs[4] == ["text/html"]
    assert outputs[5] == ["image/png"]  # somebody's own figure


def test_outside_of_notebooks_pyplot_knows_of_no_figure():
    import matplotlib.pyplot as plt

    before = plt.get_fignums()
    canvas = new_canvas(2.0, 1.0, shown=True)
    assert plt.get_fignums() == before
    assert canvas.get_size_inches().tolist() == [2.0, 1.0]
