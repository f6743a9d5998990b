"""The axes that pictures are drawn in, which a notebook shows as the picture and once.

matplotlib's inline backend shows the figures that pyplot knows at the end of a cell. A picture that is drawn there is
one of them, so that pictures of a loop are seen, with what the cell has changed of them; axes that are a cell's last
expression must then not be shown a second time.
"""

from __future__ import annotations

import io
import sys
from importlib import import_module
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure


class NotebookAxes(Axes):
    """matplotlib's axes; as the value of a cell they are the picture and not their name."""

    def _ipython_display_(self) -> None:
        """Show nothing where pyplot still has the figure, which is then shown at the end of the cell."""
        import matplotlib.pyplot as plt

        number = getattr(self.get_figure(root=True), "number", None)
        if number is None or not plt.fignum_exists(number):
            raise NotImplementedError  # IPython then asks for the picture below

    def _repr_png_(self) -> bytes:
        buffer = io.BytesIO()
        canvas: Any = self.get_figure(root=True)
        canvas.savefig(buffer, format="png", dpi=canvas.dpi, bbox_inches="tight")
        return buffer.getvalue()


def new_canvas(width: float, height: float, shown: bool) -> Any:
    """Return an empty figure of that size in inches. No window shows it, and a notebook only where it is `shown`."""
    if shown and _in_notebook():
        import matplotlib.pyplot as plt

        return plt.figure(figsize=(width, height), layout="constrained")
    canvas = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(canvas)
    return canvas


def prepare() -> None:
    """Let a notebook begin to show pictures, which it does when its backend is first used.

    That changes matplotlib's settings, so it must not happen where these are set for a while only.
    """
    if _in_notebook():
        import_module("matplotlib_inline.backend_inline")


def _in_notebook() -> bool:
    """Return whether this is a notebook whose pictures are shown below the cells."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel") and "inline" in matplotlib.get_backend()
