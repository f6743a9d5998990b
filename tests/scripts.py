"""Scripts of this repository as modules, for tests of what they compute."""

import importlib.util
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def script(name):
    """The module of a file, such as docs/rehearse.py."""
    title = name.removesuffix(".py").replace("/", "_")
    spec = importlib.util.spec_from_file_location(title, ROOT / name)
    sys.modules[title] = module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str((ROOT / name).parent))  # as Python does for a script
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module
