"""Several processes do what one does; a lost one loses nothing."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from layerscope.engine import map_jobs
from tests.helpers.jobs import answers, processes, squares


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERSCOPE_HOME", str(tmp_path / "home"))
    return tmp_path / "log"


def test_other_processes_give_the_same_and_their_failures_come_back(log):
    jobs = [*squares(log, 1, 2, 3), *squares(log, 4, fault="input")]
    outcomes = map_jobs(jobs, "processes:2")
    assert answers(outcomes[:3]) == [1, 4, 9]
    assert outcomes[3].reason == "4 cannot be squared."
    assert str(os.getpid()) not in processes(log)


@pytest.mark.slow
def test_a_killed_process_loses_nothing_and_one_that_always_dies_is_given_up(log):
    jobs = [*squares(log, 1), *squares(log, 2, fault="killed"), *squares(log, 3, fault="always killed")]
    outcomes = map_jobs([*jobs, *squares(log, 4, 5)], "processes:1")
    assert answers([*outcomes[:2], *outcomes[3:]]) == [1, 4, 16, 25]
    assert "its process was lost 3 times" in outcomes[2].reason


@pytest.mark.slow
def test_one_that_always_dies_takes_no_others_with_it(log):
    """Processes end together when one of them is killed; the last try is a job's own."""
    jobs = [*squares(log, 1, fault="always killed"), *squares(log, 2, 3, fault="slow")]
    outcomes = map_jobs(jobs, "processes:3")
    assert "its process was lost 3 times" in outcomes[0].reason
    assert answers(outcomes[1:]) == [4, 9]


SCRIPT = """
import sys
from pathlib import Path
from tests.helpers.jobs import squares
from layerscope.engine import map_jobs
map_jobs(squares(Path(sys.argv[-1]), 1, 2), "processes:1")
"""


@pytest.mark.parametrize("given", ["on standard input", "without a guard"])
def test_a_script_that_processes_cannot_import_is_told_so(log, monkeypatch, tmp_path, given):
    """Not that each of its jobs was killed three times."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[3]), *sys.path]))
    (tmp_path / "script.py").write_text(SCRIPT)
    name, text = ("-", SCRIPT) if given == "on standard input" else (str(tmp_path / "script.py"), "")
    command = [sys.executable, name, str(log)]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=240, check=False)
    assert "No process could be started" in done.stderr.splitlines()[-1]
    assert not log.exists()


LONG = """
import signal
import sys
from pathlib import Path
from tests.helpers.jobs import squares
from layerscope.engine import map_jobs
if __name__ == "__main__":
    log = Path(sys.argv[-1])
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also where the tests run in the background
    map_jobs([*squares(log, 1, 2, fault="stuck"), *squares(log, 3)], "processes:3")
"""


@pytest.mark.slow
@pytest.mark.parametrize("how", ["killed", "interrupted"])
def test_workers_end_with_the_process_that_started_them(log, monkeypatch, tmp_path, how):
    """Whether it is killed or interrupted from the keyboard; else each would keep its memory for good."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[3]), *sys.path]))
    (tmp_path / "script.py").write_text(LONG)
    command = [sys.executable, str(tmp_path / "script.py"), str(log)]
    started = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True)
    _wait_for(lambda: log.exists() and len(processes(log)) == 3)
    time.sleep(1)  # one of them has no work any more
    workers = [psutil.Process(int(number)) for number in processes(log)]
    if how == "killed":
        started.kill()
    else:
        os.killpg(started.pid, signal.SIGINT)  # as a terminal does
    gone, left = psutil.wait_procs(workers, timeout=30)
    for worker in left:
        worker.kill()
    assert len(gone) == 3
    assert "Process SpawnProcess" not in started.communicate(timeout=60)[1]


def _wait_for(ready):
    end = time.monotonic() + 120
    while not ready():
        assert time.monotonic() < end
        time.sleep(0.1)
