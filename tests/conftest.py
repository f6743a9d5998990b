"""Every test works in a store of its own, offline."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # of commands too: threads of parallel tests wait for one another
sys.path.insert(0, str(Path(__file__).parent.parent / "garden"))
sys.path.insert(0, str(Path(__file__).parent.parent / "garden" / "src"))

import pytest
import torch

torch.set_num_threads(1)  # the tests run in parallel processes


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that need more GPUs than there are."""
    there = torch.cuda.device_count() if torch.cuda.is_available() else 0
    for item in items:
        mark = item.get_closest_marker("gpu")
        if mark is not None and (needed := mark.kwargs.get("count", 1)) > there:
            item.add_marker(pytest.mark.skip(reason=f"GPUs needed: {needed}; GPUs on this machine: {there}"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Where the tests for a GPU were asked for, say how many ran on which, and fail if none did."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")  # None in the processes of xdist
    if session.config.getoption("markexpr") != "gpu" or reporter is None:
        return
    passed, failed, skipped = (len(reporter.stats.get(name, ())) for name in ("passed", "failed", "skipped"))
    where = "no GPU: nothing is shown by this"
    if passed + failed:
        where = f"{torch.cuda.get_device_name()}, with torch {torch.__version__}: {failed} failed"
    else:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    reporter.write_line(f"\n{passed + failed} tests ran on {where}, {skipped} were skipped.")


@pytest.fixture(autouse=True)
def home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The test's store, which goes with it: those of thousands of tests would fill a disk."""
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("LAYERSCOPE_HOME", str(folder))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def posted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the jobs that go through the engine `posted`, which sends them as other processes would get them."""
    from layerscope.engine import jobs as mapping
    from layerscope.engine.engines.local import Local
    from tests.helpers.jobs import Posted

    monkeypatch.setattr(mapping, "ENGINES", {"posted": Posted, "local": Local})
    monkeypatch.setattr(Posted, "sent", [])
    return Posted.sent


@pytest.fixture(scope="session")
def tuned_minilm(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder of a real tuned classifier, made once for all test processes."""
    from filelock import FileLock

    from tests.helpers.checkpoints import save_tuned_minilm

    shared = tmp_path_factory.getbasetemp()
    shared = shared.parent if "PYTEST_XDIST_WORKER" in os.environ else shared
    with FileLock(shared / "tuned.lock"):
        if not (shared / "tuned" / "config.json").is_file():
            save_tuned_minilm(shared / "tuned")
    return str(shared / "tuned")
