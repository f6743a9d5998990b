"""A job where it has arrived: its outcome, and the environment it finds there."""

from layerscope.engine.jobs import work, worker_environment
from tests.helpers.jobs import Squared, squares


def test_work_gives_the_folder_and_the_time(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERSCOPE_HOME", str(tmp_path / "home"))
    job = squares(tmp_path / "log", 6)[0]
    outcome = work(job)
    assert outcome.folder == job.artifact.find()
    assert outcome.seconds > 0
    assert Squared(7, tmp_path / "log").find() is None


def test_a_worker_finds_the_same_store_and_its_share_of_the_cores(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERSCOPE_HOME", str(tmp_path))
    monkeypatch.setenv("LAYERSCOPE_DATA", "a:b")
    monkeypatch.setenv("SECRET", "s")
    environment = worker_environment(2.5)
    assert environment["LAYERSCOPE_HOME"] == str(tmp_path)
    assert environment["LAYERSCOPE_DATA"] == "a:b"
    assert environment["OMP_NUM_THREADS"] == "2"
    assert worker_environment(0.25)["OMP_NUM_THREADS"] == "1"
    assert "SECRET" not in environment
