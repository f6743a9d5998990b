"""The command line for tests: in a process of its own, as a user has it, or in this one, where that is enough."""

import io
import os
import subprocess
import sys
import warnings
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from types import SimpleNamespace
from unittest.mock import patch

from layerscope.__main__ import main
from layerscope.errors import log

# How two processes work together. Without GPUs `accelerate launch --num_processes 2` starts one, and says nothing.
TOGETHER = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2")


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "layerscope", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=300,
        check=False,
    )


def run_here(*arguments):
    """The same without the seconds that a new process needs to import everything."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    given = ["layerscope", *map(str, arguments)]
    with _notes_as_they_were(), redirect_stdout(out), redirect_stderr(err), patch.object(sys, "argv", given):
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    return SimpleNamespace(returncode=code, stdout=out.getvalue(), stderr=err.getvalue())


@contextmanager
def _notes_as_they_were():
    handlers, level, propagate = list(log.handlers), log.level, log.propagate
    with patch.object(warnings, "showwarning", warnings.showwarning):
        yield
    log.handlers[:], log.propagate = handlers, propagate
    log.setLevel(level)
