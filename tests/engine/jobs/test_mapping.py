"""Jobs of one key are done once, what the store has is not done again, and a failure leaves the others alone."""

import re

import pytest

from layerscope.engine import folders_of, map_jobs
from layerscope.errors import LayerscopeError
from layerscope.store import keys_of
from tests.helpers.jobs import answers, squares


@pytest.fixture
def log(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERSCOPE_HOME", str(tmp_path / "home"))
    return tmp_path / "log"


def test_outcomes_come_in_the_order_of_the_jobs_and_each_key_is_done_once(log):
    outcomes = map_jobs(squares(log, 3, 1, 3, 2))
    assert answers(outcomes) == [9, 1, 9, 4]
    assert [line.split()[0] for line in log.read_text().splitlines()] == ["3", "1", "2"]


def test_what_is_in_the_store_is_not_done_again(log):
    map_jobs(squares(log, 1, 2))
    assert answers(map_jobs(squares(log, 2, 3, 1))) == [4, 9, 1]
    assert [line.split()[0] for line in log.read_text().splitlines()] == ["1", "2", "3"]


def test_a_failed_job_has_its_reason_and_the_others_go_on(log):
    jobs = [*squares(log, 1), *squares(log, 2, fault="input"), *squares(log, 3, fault="crash"), *squares(log, 4)]
    outcomes = map_jobs(jobs)
    assert [outcome.reason for outcome in outcomes] == ["", "2 cannot be squared.", "RuntimeError: no square", ""]
    assert answers([outcomes[0], outcomes[3]]) == [1, 16]
    assert outcomes[1].folder is None


def test_what_cannot_be_kept_is_done_here_and_nowhere_else(log):
    assert answers(map_jobs(squares(log, 5, fault="no key"))) == [25]
    with pytest.raises(LayerscopeError, match=r"cannot be kept there: it has a hook\. Use --engine local"):
        map_jobs(squares(log, 5, fault="no key"), "processes:2")


@pytest.mark.parametrize(
    ("engine", "sentence"),
    [
        ("slurm", "engine"),
        ("local:2", "local takes nothing after it"),
        ("processes", "say how many processes: processes:2"),
        ("processes:0", "say how many processes"),
        ("processes:two", "processes:two was asked for"),
    ],
)
def test_an_engine_that_does_not_exist_is_refused_before_anything_runs(log, engine, sentence):
    with pytest.raises(LayerscopeError, match=sentence):
        map_jobs(squares(log, 1), engine)
    assert not log.exists()


def test_nothing_to_do_is_nothing():
    assert map_jobs([]) == map_jobs([], "processes:2") == []


def test_a_job_whose_key_cannot_be_made_fails_alone(log):
    outcomes = map_jobs([*squares(log, 1, fault="lost"), *squares(log, 2)])
    assert [outcome.reason for outcome in outcomes] == ["There is no 1.", ""]
    assert answers(outcomes[1:]) == [4]


def test_keys_are_known_without_any_work(log):
    jobs = squares(log, 1, 2)
    assert keys_of(lambda: map_jobs(jobs)) == [job.artifact.key for job in jobs]
    assert not log.exists()


def test_folders_of_all_jobs_or_an_error_that_names_every_one_that_failed(log):
    jobs = squares(log, 1, 2)
    assert [(folder / "square.txt").read_text() for folder in folders_of(jobs, "local", "squares")] == ["1", "4"]
    wrong = [*jobs, *squares(log, 3, 4, fault="input")]
    sentence = "2 of 4 squares failed; the others are kept. the square of 3: 3 cannot be squared.; the square of 4: "
    with pytest.raises(LayerscopeError, match=re.escape(sentence)):
        folders_of(wrong, "local", "squares")
