"""layerscope: look into the layers of transformer language models, and act on what is seen."""

import ast
from importlib import import_module
from pathlib import Path
from typing import Any

# The public names stand once, in the stub beside this file. Each is imported when it is first used, so that
# `import layerscope` and every --help cost nothing.
HOMES = {
    alias.name: node.module.removeprefix("layerscope.")
    for node in ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8")).body
    if isinstance(node, ast.ImportFrom) and node.module
    for alias in node.names
}
__all__ = sorted(HOMES)  # noqa: PLE0605  (a list)


def __getattr__(name: str) -> Any:
    if name not in HOMES:
        raise AttributeError(f"module 'layerscope' has no attribute {name!r}")
    value = getattr(import_module(f"layerscope.{HOMES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
