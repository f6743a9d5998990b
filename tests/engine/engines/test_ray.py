"""A real Ray on this machine gives what one process gives, through kills of workers and of the driver."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from jobs import answers, processes, squares

from layerscope.engine import map_jobs
from layerscope.errors import LayerscopeError

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'layerscope[ray]'")


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_a_sentence_says_how_to_get_it(tmp_path):
    with pytest.raises(LayerscopeError, match=r"pip install 'layerscope\[ray\]'"):
        map_jobs(squares(tmp_path / "log", 1), "ray")


@needs_ray
@pytest.mark.slow
def test_jobs_survive_on_ray(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERSCOPE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[2]), *sys.path]))
    log = tmp_path / "log"
    jobs = [*squares(log, 1, 2), *squares(log, 3, fault="killed"), *squares(log, 4, fault="input")]
    outcomes = map_jobs(jobs, "ray")
    assert answers(outcomes[:3]) == [1, 4, 9]
    assert outcomes[3].reason == "4 cannot be squared."
    assert str(os.getpid()) not in processes(log)
    assert jobs[2].artifact.tries == 2


@needs_ray
@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERSCOPE_HOME", str(tmp_path / "home"))
    with pytest.raises(LayerscopeError, match="No Ray cluster could be joined at auto"):
        map_jobs(squares(tmp_path / "log", 1), "ray:auto")
