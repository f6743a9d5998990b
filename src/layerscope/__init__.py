"""layerscope: look into the layers of transformer language models, and act on what is seen."""

from __future__ import annotations

import sys
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from layerscope.errors import LayerscopeError
from layerscope.version import __version__

if TYPE_CHECKING:
    from layerscope.analysis import Blocks, Curve, blocks, localization
    from layerscope.data import Task, task, tasks
    from layerscope.extract import Attentions, Representations, attentions, extract, stream
    from layerscope.measures import Moments, Similarity, compare, measure, measures, panels
    from layerscope.models import Model, Replay, families, load


# Each name's home: imported when it is first used, so that `import layerscope` and --help cost nothing.
_HOMES = {
    "Attentions": "extract",
    "Blocks": "analysis",
    "Curve": "analysis",
    "Model": "models",
    "Moments": "measures",
    "Replay": "models",
    "Representations": "extract",
    "Similarity": "measures",
    "Task": "data",
    "attentions": "extract",
    "blocks": "analysis",
    "compare": "measures",
    "extract": "extract",
    "families": "models",
    "load": "models",
    "localization": "analysis",
    "measure": "measures",
    "measures": "measures",
    "panels": "measures",
    "stream": "extract",
    "task": "data",
    "tasks": "data",
}

__all__ = [
    "Attentions",
    "Blocks",
    "Curve",
    "LayerscopeError",
    "Model",
    "Moments",
    "Replay",
    "Representations",
    "Similarity",
    "Task",
    "__version__",
    "attentions",
    "blocks",
    "compare",
    "extract",
    "families",
    "load",
    "localization",
    "measure",
    "measures",
    "panels",
    "stream",
    "task",
    "tasks",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'layerscope' has no attribute {name!r}")
    value = getattr(import_module(f"layerscope.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


class _Api(ModuleType):
    """`ls.extract` is the function, also after something has imported the room `layerscope.extract`."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _HOMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Api
