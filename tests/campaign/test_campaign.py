"""What campaigns found stays mended, no command that writes is left out, and five minutes of it find nothing."""

import json
import os
import re
import shutil
import subprocess
import sys
from random import Random

import pytest

from tests.helpers.cli import ROOT

from . import kills, regressions
from .harness import World
from .hostile import markup_in
from .inputs import shrunk, shrunk_tree
from .kills import Kills, Reference
from .mutations import json_file, mutator
from .poison import TAG
from .scene import COMMANDS, READING, names_of_commands


def campaign(*words, timeout):
    """The campaign in a process of its own: it forks, and must not have the threads of a test run."""
    source = os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")])
    return subprocess.run(
        [sys.executable, "-m", "tests.campaign", *map(str, words)],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": source},
        timeout=timeout,
        check=False,
    )


@pytest.fixture(scope="module")
def faults():
    """What is wrong with each case that was found before."""
    done = campaign("--replay", timeout=900)
    assert done.stdout.startswith("{"), done.stderr
    return json.loads(done.stdout)


@pytest.mark.slow
@pytest.mark.parametrize("name", regressions.kept())
def test_what_was_found_stays_mended(name, faults):
    assert faults[name] == ""


def test_every_command_is_killed_or_says_why_not():
    written = {name.partition(" --")[0] for name in COMMANDS}
    assert written | set(READING) == set(names_of_commands())
    assert not written & set(READING)


@pytest.mark.slow
def test_five_minutes_find_nothing():
    done = campaign("--seed", 0, "--minutes", 5, "--forget", timeout=3600)
    assert done.returncode == 0, done.stdout + done.stderr
    found = dict(re.findall(r"^(\w+): seed 0, \d+ cases, (\d+) failures", done.stdout, re.MULTILINE))
    assert found == {"kills": "0", "inputs": "0", "crowds": "0", "hostile": "0"}


def test_files_of_two_runs_in_one_output_are_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(kills, "values_of", kills._values_of)
    world = World(tmp_path)
    part, trees = Kills(world), {}
    for run in ("old", "new"):
        record = world.clean() / "out" / "compare-record"
        record.mkdir(parents=True)
        for name in ("a.csv", "b.csv"):
            (record / name).write_text(f"x\n{run}\n")
            (record.parent / name).symlink_to(f"compare-record/{name}")
        trees[run] = kills._values_of(world.work)
    part._earlier["compare"] = trees["old"]
    reference = Reference(frozenset(), trees["new"], 0, 0.0)
    out = world.work / "out"
    assert part._partial("compare", "over", reference) == ""
    (out / "c.csv").symlink_to("compare-record/c.csv")  # it leads nowhere, so that nothing is seen
    assert part._partial("compare", "over", reference) == ""
    (out / "a.csv").unlink()
    assert "missing: a.csv" in part._partial("compare", "fresh", reference)
    (out / "a.csv").write_text("x\nold\n")
    assert "earlier: a.csv" in part._partial("compare", "over", reference)
    shutil.rmtree(out)
    assert part._partial("compare", "fresh", reference) == ""
    assert part._partial("compare", "over", reference) == "there is nothing in out any more"


ENDINGS = ("json", "csv", "tsv", "jsonl", "conllu", "txt", "safetensors", "parquet", "csv.gz", "bin")


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_same_number_is_the_same_damage(ending):
    content = b'{"a": [1, 2, {"b": "c"}], "d": null}'
    damage = mutator(f"rows.{ending}")
    assert damage(Random("7"), content) == damage(Random("7"), content)
    assert len({damage(Random(f"{k}"), content) for k in range(40)}) > 10


def test_a_failing_input_becomes_small():
    assert shrunk(b"a" * 500 + b"!" + b"b" * 500, lambda content: b"!" in content) == b"!"
    assert shrunk_tree(b'{"a": 1, "b": {"c": 2}, "d": 3}', lambda content: b'"c"' in content) == b'{"b": {"c": 2}}'


def test_what_is_kept_is_what_was_found():
    for content in (b"short", b"\xff\x00", "ä".encode() * 1000, json_file(Random("3"), b"{}")):
        assert regressions.unpacked(regressions.packed(content)) == content


def test_markup_of_a_name_is_seen():
    assert not markup_in(f"<p>&lt;{TAG}&gt;</p><script>const x = '<{TAG}>'</script>")
    assert TAG in markup_in(f"<p><{TAG}></p>")
    assert markup_in("<img onerror=alert(1)>")
