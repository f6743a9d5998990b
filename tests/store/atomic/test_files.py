"""Files are whole or not there."""

import subprocess
import sys

import numpy as np
import pytest

import layerscope as ls
from layerscope.errors import InputError
from layerscope.store import is_sealed, output_file, seal, whole_file, write_text
from layerscope.store.atomic import remove_seals


def test_a_file_is_whole_or_not_there(tmp_path):
    def fail() -> None:
        with whole_file(tmp_path / "a.csv") as temporary:
            temporary.write_text("half of what")
            raise OSError("full")

    (tmp_path / "a.csv").write_text("old")
    with pytest.raises(OSError, match="full"):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
    assert (tmp_path / "a.csv").read_text() == "old"
    with whole_file(tmp_path / "a.csv") as temporary:
        temporary.write_text("new")
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
    assert (tmp_path / "a.csv").read_text() == "new"


def test_a_writer_that_puts_another_file_in_its_place_keeps_it(tmp_path):
    """As safetensors does; a second process that writes there must not take it for abandoned."""
    with whole_file(tmp_path / "a.bin") as temporary:
        temporary.unlink()
        temporary.write_text("a")
        code = (
            "import sys; from pathlib import Path; from layerscope.store import *; write_text(Path(sys.argv[1]), 'b')"
        )
        subprocess.run([sys.executable, "-c", code, str(tmp_path / "b")], check=True)
    assert (tmp_path / "a.bin").read_text() == "a"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.bin", "b"]


def test_a_part_counts_only_while_it_is_what_was_sealed(tmp_path, caplog):
    part = tmp_path / "shard-00000.safetensors"
    assert not is_sealed(part)
    part.write_bytes(b"payload")
    assert not is_sealed(part)
    seal(part)
    assert is_sealed(part)
    part.write_bytes(b"paylaod")
    assert not is_sealed(part)
    assert "shard-00000.safetensors" in caplog.text
    remove_seals(tmp_path)
    assert [file.name for file in tmp_path.iterdir()] == [part.name]


def test_half_a_character_of_a_broken_file_name_is_no_obstacle(tmp_path):
    write_text(tmp_path / "a.csv", "caf\udce9,1\n")
    assert (tmp_path / "a.csv").read_text() == "caf?,1\n"


def outputs():
    rows = np.random.default_rng(0).normal(size=(20, 3))
    sim = ls.compare([rows, rows + 1])
    record = ls.Record(kind="x", title="One", figures=sim.figures())
    return {
        "aligner": ls.align(rows, rows).save,
        "result": sim.save,
        "table": lambda path: sim.save(path.with_suffix(".csv")),
        "picture": lambda path: sim.plot(path.with_suffix(".png")),
        "report": lambda path: ls.report(record, path),
    }


@pytest.mark.parametrize("what", ["aligner", "result", "table", "picture", "report"])
def test_what_is_in_the_way_is_named_and_left_alone(what, tmp_path):
    write = outputs()[what]
    for name in ("there", "there.csv", "there.png"):
        (tmp_path / name).mkdir()
    with pytest.raises(InputError, match=r"there(\.csv|\.png)? is a folder; give the name of a file"):
        write(tmp_path / "there")
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match=r"cannot be written: .*; give another path"):
        write(tmp_path / "file" / "below")
    assert (tmp_path / "file").read_text() == "mine"
    assert not list(tmp_path.rglob(".layerscope-*"))
    write(tmp_path / "new" / "folder" / "out")
    assert len(list((tmp_path / "new" / "folder").iterdir())) == 1


def test_what_fails_while_it_is_written_leaves_the_earlier_file(tmp_path):
    def fail() -> None:
        with output_file(path) as temporary:
            temporary.write_text("half")
            raise OSError(28, "No space left on device")

    path = tmp_path / "out.txt"
    path.write_text("earlier")
    with pytest.raises(InputError, match="No space left"):
        fail()
    assert path.read_text() == "earlier"
    assert [each.name for each in tmp_path.iterdir()] == ["out.txt"]
