"""Unfinished work: under one kind of name, never another process's, cleared when its process is gone."""

import multiprocessing
import os
import signal
from pathlib import Path

import pytest

from layerscope.errors import InputError
from layerscope.store import atomic, atomic_folder, clear, clear_everywhere, discard, is_staging, settled, write_text
from layerscope.store.atomic import OLD, STAGING, lasting_folder, remembered, staging_file, staging_folder
from tests.helpers.jobs import abandoned_staging


def killed(work, *arguments) -> None:
    """Do something in another process, which is killed at its end."""
    process = multiprocessing.get_context("fork").Process(target=_and_die, args=(work, *arguments))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL


def _and_die(work, *arguments) -> None:
    held = work(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)
    del held


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_what_is_being_written_is_left_alone_and_goes_at_the_end(tmp_path):
    with staging_folder(tmp_path) as folder, staging_file(tmp_path) as file:
        (folder / "part").write_text("x")
        clear(tmp_path)
        assert names(tmp_path) == sorted([folder.name, file.parent.name])
        assert file.exists()
        assert is_staging(folder)
        assert is_staging(folder / "part")
    assert names(tmp_path) == []
    assert not is_staging(tmp_path / "layerscope-1")


def test_what_a_killed_process_left_is_cleared_by_the_next_one_that_writes_there(tmp_path):
    def work():
        held = staging_folder(tmp_path), staging_file(tmp_path)
        (held[0].__enter__() / "x").mkdir()
        held[1].__enter__().write_text("half")
        return held

    killed(work)
    (tmp_path / "mine").write_text("x")
    assert len(names(tmp_path)) == 3
    write_text(tmp_path / "a.csv", "1")
    assert names(tmp_path) == ["a.csv", "mine"]


def test_what_a_killed_process_left_is_cleared_by_the_next_run_of_anything(tmp_path):
    here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
    here.mkdir()
    elsewhere.mkdir()

    def work():
        held = staging_folder(here), staging_file(here)
        return [*held, held[0].__enter__(), held[1].__enter__()]

    killed(work)
    assert len(names(here)) == 2
    with staging_folder(elsewhere) as mine:
        clear_everywhere()
        assert names(here) == []
        assert names(elsewhere) == [mine.name]  # its process is alive
        assert list(remembered()) == [elsewhere]
    assert list(remembered()) == []


def test_the_place_is_noted_as_long_as_anybody_writes_there(tmp_path):
    with staging_folder(tmp_path):
        with staging_file(tmp_path):
            assert list(remembered()) == [tmp_path]
        assert list(remembered()) == [tmp_path]
    assert list(remembered()) == []


def test_names_cannot_be_guessed_and_links_are_not_followed(tmp_path, monkeypatch):
    with staging_file(tmp_path) as one, staging_file(tmp_path) as other:
        assert one.parent.name != other.parent.name
        assert str(os.getpid()) not in one.parent.name.removeprefix(STAGING)[:8]
    victim, link = tmp_path / "victim", tmp_path / f"{STAGING}{7:016}"
    victim.write_text("precious")
    link.symlink_to(victim)
    monkeypatch.setattr("layerscope.store.atomic.secrets.token_hex", lambda _: f"{7:016}")
    with pytest.raises(FileExistsError), staging_file(tmp_path):
        pass
    clear(tmp_path)
    assert victim.read_text() == "precious"


def test_a_link_is_replaced_and_what_it_points_to_is_left_alone(tmp_path):
    (tmp_path / "victim").write_text("precious")
    (tmp_path / "table.csv").symlink_to(tmp_path / "victim")
    write_text(tmp_path / "table.csv", "a,b\n")
    assert (tmp_path / "victim").read_text() == "precious"
    assert (tmp_path / "table.csv").read_text() == "a,b\n"


def test_a_folder_that_a_killed_replacement_moved_away_comes_back_when_it_is_opened(tmp_path):
    def work():
        held = staging_folder(tmp_path)
        staging = held.__enter__()
        for folder in (staging / "new", staging / OLD, tmp_path / "out"):
            folder.mkdir()
        (tmp_path / "out" / "card").write_text("old")
        (tmp_path / "out").rename(staging / OLD / "out")
        return held

    killed(work)
    assert not (tmp_path / "out").exists()
    assert (settled(tmp_path / "out") / "card").read_text() == "old"
    assert names(tmp_path) == ["out"]


def test_what_was_moved_away_does_not_replace_what_is_there_again(tmp_path):
    (abandoned_staging(tmp_path) / OLD / "out").mkdir(parents=True)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "card").write_text("new")
    clear(tmp_path)
    assert (tmp_path / "out" / "card").read_text() == "new"
    assert names(tmp_path) == ["out"]


def test_a_folder_is_discarded_whole_or_not_at_all(tmp_path):
    discard(tmp_path / "missing")
    (tmp_path / "a" / "b").mkdir(parents=True)
    discard(tmp_path / "a")
    assert names(tmp_path) == []


def test_a_lasting_folder_is_this_process_s(tmp_path):
    folder = lasting_folder(tmp_path)
    clear(tmp_path)
    assert folder.is_dir()


def test_folders_that_cannot_be_listed_are_no_obstacle(tmp_path):
    clear(tmp_path / "missing")
    (tmp_path / "file").write_text("x")
    assert settled(tmp_path / "file" / "below") == tmp_path / "file" / "below"
    assert settled(tmp_path / ("x" * 300)).name == "x" * 300


@pytest.mark.parametrize("name", [f"{STAGING}notes", f"{STAGING}{5:016}", f"{STAGING}{5:015}g", f"{STAGING}{5:017}"])
@pytest.mark.parametrize("kind", ["a folder", "a file", "a marked name", "an empty folder"])
def test_what_others_call_like_unfinished_work_stays(name, kind, tmp_path):
    mine = tmp_path / name
    if kind == "a file":
        mine.write_text("mine")
    else:
        mine.mkdir()
        if kind != "an empty folder":
            (mine / "thesis.txt").write_text("mine")
        if kind == "a marked name":  # of another folder than this
            (mine / f"unfinished-{6:016}").touch()
    write_text(tmp_path / "a.csv", "1")
    with staging_folder(tmp_path):
        clear_everywhere()
    assert mine.exists()
    assert kind == "an empty folder" or (mine if kind == "a file" else mine / "thesis.txt").read_text() == "mine"
    assert list(remembered()) == []


def _killed_before_its_marker(folder):
    atomic._marker = lambda _: os.kill(os.getpid(), signal.SIGKILL)
    return lasting_folder(folder)


def test_a_kill_before_the_marker_or_while_it_is_cleared_leaves_nothing(tmp_path):
    killed(_killed_before_its_marker, tmp_path)
    (early,) = tmp_path.iterdir()
    assert not list(early.iterdir())
    left = abandoned_staging(tmp_path, 2)
    (left / "part").write_text("half")
    assert is_staging(left / "part")
    clear(tmp_path)
    assert names(tmp_path) == []


def test_a_name_of_unfinished_work_is_none_for_an_output(tmp_path):
    with pytest.raises(InputError, match=r"names that begin with \.layerscope- are those of unfinished work"):
        write_text(tmp_path / f"{STAGING}notes", "1")
    with pytest.raises(InputError, match="give another"), atomic_folder(tmp_path / f"{STAGING}out", "card"):
        pass
    assert names(tmp_path) == []
