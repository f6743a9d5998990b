"""The local engine works in this process."""

import os

from layerscope.engine import map_jobs
from tests.helpers.jobs import answers, processes, squares


def test_jobs_run_in_this_process(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERSCOPE_HOME", str(tmp_path / "home"))
    assert answers(map_jobs(squares(tmp_path / "log", 2, 3), "local")) == [4, 9]
    assert processes(tmp_path / "log") == {str(os.getpid())}
