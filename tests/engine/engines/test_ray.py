"""A real Ray on this machine gives what one process gives, through kills of workers and of the driver."""

import os
import signal
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path

import pandas
import pytest
import torch

import layerscope as ls
from layerscope.engine import map_jobs
from layerscope.errors import LayerscopeError
from tests.helpers.data import three_class_frame
from tests.helpers.jobs import answers, processes, squares
from tests.helpers.models import QUICK, random_model

needs_ray = pytest.mark.skipif(find_spec("ray") is None, reason="Ray is not installed: pip install 'layerscope[ray]'")
SWEEP = """
import sys
from pathlib import Path
from tests.helpers.jobs import squares
from layerscope.engine import map_jobs
outcomes = map_jobs(squares(Path(sys.argv[1]), *range(int(sys.argv[2])), fault="slow"), "ray")
print(sum(outcome.folder is not None for outcome in outcomes))
"""


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERSCOPE_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(Path(__file__).parents[3]), *sys.path]))
    return tmp_path / "log"


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed")
def test_without_ray_a_sentence_says_how_to_get_it(tmp_path):
    with pytest.raises(LayerscopeError, match=r"pip install 'layerscope\[ray\]'"):
        map_jobs(squares(tmp_path / "log", 1), "ray")


@needs_ray
@pytest.mark.slow
def test_jobs_survive_on_ray(log):
    """A worker killed in the middle of its job loses nothing, and a job that raises is its one sentence."""
    jobs = [*squares(log, 1, 2), *squares(log, 3, fault="killed"), *squares(log, 4, fault="input")]
    outcomes = map_jobs(jobs, "ray")
    assert answers(outcomes[:3]) == [1, 4, 9]
    assert outcomes[3].reason == "4 cannot be squared."
    assert str(os.getpid()) not in processes(log)
    assert jobs[2].artifact.tries == 2
    local = map_jobs(squares(log, 1, 2), "local")  # the same folders, made once
    assert [outcome.folder for outcome in local] == [outcome.folder for outcome in outcomes[:2]]


@needs_ray
@pytest.mark.slow
def test_a_sweep_goes_on_after_its_driver_is_killed(log):
    command = [sys.executable, "-c", SWEEP, str(log), "8"]
    driver = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    deadline = time.monotonic() + 120
    while (not log.exists() or len(log.read_text().splitlines()) < 3) and time.monotonic() < deadline:
        time.sleep(0.2)
    os.killpg(driver.pid, signal.SIGKILL)  # the driver and the Ray that it started
    driver.wait()
    first = [job for job in squares(log, *range(8), fault="slow") if job.artifact.find() is not None]
    assert len(first) < 8
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    assert done.stdout.split()[-1] == "8"
    assert all(job.artifact.tries == 1 for job in first)


@needs_ray
@pytest.mark.slow
def test_a_cluster_that_is_not_there_is_a_sentence(log):
    with pytest.raises(LayerscopeError, match="No Ray cluster could be joined at auto"):
        map_jobs(squares(log, 1), "ray:auto")


@needs_ray
@pytest.mark.slow
def test_a_running_cluster_is_joined_and_left_as_it_is(log, monkeypatch):
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2})
    try:
        monkeypatch.setenv("RAY_ADDRESS", cluster.address)
        assert answers(map_jobs(squares(log, 1, 2), "ray:auto")) == [1, 4]
        assert answers(map_jobs(squares(log, 2, 3), f"ray:{cluster.address}")) == [4, 9]  # still there
    finally:
        cluster.shutdown()
    assert len(log.read_text().splitlines()) == 3  # what both sweeps ask for is done once


@needs_ray
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::layerscope.errors.LayerscopeWarning")
def test_studies_of_networks_in_memory_are_the_same_on_ray(log, tmp_path, monkeypatch):
    """The network goes to the workers with its job, and what they learn comes back through the store: no worker finds
    anything that another engine has left there."""
    task = ls.task({"train": three_class_frame(48, 0), "validation": three_class_frame(24, 1)})
    weights, errors = [], []
    for engine in ("local", "ray"):
        monkeypatch.setenv("LAYERSCOPE_HOME", str(tmp_path / f"store of {engine}"))
        study = ls.strategy_study(random_model(), task, ["full", "head-only"], seeds=[0], engine=engine, **QUICK)
        tuned = [trainings.trainings[0].model for trainings in study.trainings]
        weights.append([dict(network.named_parameters()) for network in tuned])
        injected = ls.injection_study(*tuned, task, methods=["linear"], engine=engine)
        errors.append(injected.frame)
    for here, there in zip(*weights, strict=True):
        assert here.keys() == there.keys()
        assert all(torch.allclose(here[name], there[name], atol=1e-6) for name in here)
    pandas.testing.assert_frame_equal(*errors)
