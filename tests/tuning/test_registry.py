"""Methods are found by their files, and listed without torch."""

import subprocess
import sys
from pathlib import Path

import layerscope.tuning
from layerscope.tuning.method import Method
from layerscope.tuning.registry import METHODS

ROOM = Path(layerscope.tuning.__file__).parent


def test_every_file_is_a_method_of_its_name():
    files = {path.stem for path in (ROOM / "methods").glob("*.py")} - {"__init__"}
    assert set(METHODS) == files == {"finetune", "adapter", "lora", "prefix"}
    for name in METHODS:
        assert issubclass(METHODS[name], Method)
        assert METHODS[name].name == name
        assert (METHODS[name].default_size is None) == (not METHODS[name].size_is)


def test_names_are_listed_without_torch():
    code = "import sys; from layerscope.tuning.registry import METHODS; print(list(METHODS), 'torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['adapter', 'finetune', 'lora', 'prefix'] False"
