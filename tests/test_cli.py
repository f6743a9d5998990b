"""The command line as a whole: help for every command, at no cost."""

import subprocess
import sys

import pytest

import layerscope as ls
from tests.helpers.cli import run, run_here

COMMANDS = [
    [],
    ["extract"],
    ["compare"],
    ["evaluate"],
    ["truncate"],
    ["skip"],
    ["advise"],
    ["heal"],
    ["localization"],
    ["influence"],
    ["reproduce"],
    ["specialty"],
    ["align"],
    ["inject"],
    ["tune"],
    ["strategies"],
    ["report"],
    ["figures"],
    ["measures"],
    ["tasks"],
    ["models"],
    ["demo"],
    ["cache"],
    ["cache", "ls"],
    ["cache", "verify"],
    ["cache", "rm"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_help_text_ends_with_an_example(command):
    done = run(*command, "--help")
    assert done.returncode == 0
    assert "Example:  layerscope" in done.stdout


def test_no_help_imports_anything_heavy():
    code = (
        "import sys\n"
        "from layerscope.cli import COMMANDS, main\n"
        "for name in COMMANDS:\n"
        "    sys.argv = ['layerscope', name, '--help']\n"
        "    try: main()\n"
        "    except SystemExit as stop: assert not stop.code, name\n"
        "heavy = {'torch', 'transformers', 'numpy', 'pandas', 'datasets', 'pyarrow', 'yaml'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "HEAVY []" in done.stdout


def test_version():
    assert run("--version").stdout.strip() == f"layerscope {ls.__version__}"


@pytest.mark.parametrize("command", [[], ["cache"]], ids=["layerscope", "layerscope cache"])
def test_without_arguments_there_is_help(command):
    done = run_here(*command)
    assert "Traceback" not in done.stderr
    assert "Usage: " in done.stdout + done.stderr
