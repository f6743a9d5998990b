"""layerscope: look into the layers of transformer language models, and act on what is seen."""

import ast
import sys
from importlib import import_module
from inspect import isfunction
from pathlib import Path
from typing import Any

try:
    import fcntl  # noqa: F401  (the store locks what is being written)
except ImportError:
    from layerscope.errors import PlatformError

    _REFUSED = PlatformError(
        f"layerscope runs on Linux and macOS, and not on this platform ({sys.platform}): its store needs the file "
        "locks of Python's module fcntl. On Windows, install and run it in WSL "
        "(https://learn.microsoft.com/windows/wsl)."
    )
    # The program, or `python -m layerscope`, imports this before any line of its own could catch the error.
    if len(sys.argv) <= len(sys.orig_argv) and Path(sys.orig_argv[-len(sys.argv)]).stem == "layerscope":
        sys.exit(str(_REFUSED))
    raise _REFUSED from None

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
    if isfunction(value):
        value = import_module("layerscope.arguments").checked(value)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
