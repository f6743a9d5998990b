import json
import logging
from pathlib import Path

import pytest

from layerscope.store import Artifact, NoKey, Store, keys_of, produce_all


class Sum(Artifact):
    """The sum of some numbers; `log` tells how often it was computed."""

    kind = "sum"

    def __init__(self, *numbers, log=None, secret=False):
        self.numbers, self.log, self.secret = numbers, [] if log is None else log, secret

    def spec(self):
        if self.secret:
            raise NoKey("one number is a secret")
        return {"numbers": list(self.numbers)}

    def build(self, folder):
        self.log.append(folder)
        (folder / "sum.json").write_text(json.dumps(sum(self.numbers)))

    def value(self):
        return json.loads((self.produce() / "sum.json").read_text())


class Newer(Sum):
    version = 2


class Other(Sum):
    kind = "other"


class Data(Sum):
    """What decides other keys, and is therefore read."""

    kind = "data"
    planned = False


def test_a_result_is_computed_once_and_read_from_then_on():
    log = []
    assert Sum(1, 2, log=log).value() == Sum(1, 2, log=log).value() == 3
    assert len(log) == 1
    (entry,) = Store().entries()
    assert (entry.kind, entry.key, entry.state) == ("sum", Sum(1, 2).key, "done")


def test_kind_version_and_spec_make_the_key():
    assert Sum(1, 2).key == Sum(1, 2, log=[0]).key
    assert len({thing.key for thing in (Sum(1, 2), Sum(2, 1), Newer(1, 2), Other(1, 2))}) == 4


def test_a_key_is_known_without_computing(home):
    log = []
    assert Sum(1, log=log).key
    assert not log
    assert not Store().entries()


def test_several_are_given_in_their_order():
    folders = produce_all([Sum(3), Sum(1), Sum(3)])
    assert [json.loads((folder / "sum.json").read_text()) for folder in folders] == [3, 1, 3]
    assert folders[0] == folders[2]


def test_keys_of_a_call_are_those_that_it_asks_for_first():
    log = []

    def call():
        produce_all([Sum(1, log=log), Sum(2, log=log)])
        Sum(3, log=log).produce()

    assert keys_of(call) == [Sum(1).key, Sum(2).key]
    assert not log
    assert not Store().entries()
    call()
    assert keys_of(call) == [Sum(1).key, Sum(2).key]  # in the store or not
    assert len(log) == 3


def test_a_call_that_asks_for_nothing_has_no_keys():
    assert keys_of(lambda: 1) == []


def test_data_is_read_where_keys_are_asked_for():
    def call():
        Sum(Data(1, 1).value()).produce()

    assert keys_of(call) == [Sum(2).key]
    assert [entry.kind for entry in Store().entries()] == ["data"]


def test_after_an_error_calls_compute_again():
    with pytest.raises(ZeroDivisionError):
        keys_of(lambda: 1 / 0)
    assert Sum(4).value() == 4


def test_what_has_no_key_is_computed_in_a_folder_aside(caplog):
    log, hidden = [], Sum(5, 6, secret=True)
    hidden.log = log
    with caplog.at_level(logging.INFO, logger="layerscope"):
        assert hidden.value() == hidden.value() == 11
    assert len(log) == len(set(log)) == 2  # each time anew, in a folder of its own
    assert not Store().entries()
    assert all(Path(folder).is_dir() and Store().root not in Path(folder).parents for folder in log)
    assert "The sum is computed without the store: one number is a secret." in caplog.text
    with pytest.raises(NoKey, match="a secret"):
        keys_of(hidden.produce)


def test_an_artifact_inside_another_is_stored_beside_it():
    class Outer(Sum):
        kind = "outer"

        def build(self, folder):
            (folder / "sum.json").write_text(json.dumps(Sum(*self.numbers).value()))

    assert Outer(1, 2).value() == 3
    assert sorted(entry.kind for entry in Store().entries()) == ["outer", "sum"]
    assert keys_of(Outer(1, 2).produce) == [Outer(1, 2).key]
