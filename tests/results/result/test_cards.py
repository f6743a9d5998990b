"""Schemas of records and results: what a record says is what is drawn, or it is a sentence."""

import json

import pytest

import layerscope as ls
from layerscope.errors import DataError
from layerscope.results.records import CARD
from tests.helpers.figures import record_of_every_kind

WRONG = [3, "x", None, [], {}, [1], {"a": 1}, [[]], True, -1, 1e308, "\ud800", "x" * 30_000]
FIELDS = [
    *("kind", "title", "command", "created", "seconds", "findings", "next", "models", "data", "settings", "versions"),
    *("tables", "files", "figures"),
]


def with_value(folder, value, *path):
    card = json.loads((folder / CARD).read_text())
    part = card
    for step in path[:-1]:
        part = part[step]
    part[path[-1]] = value
    (folder / CARD).write_text(json.dumps(card))


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    folder = ls.write_record(tmp_path_factory.mktemp("records") / "record", record_of_every_kind())
    return folder, (folder / CARD).read_text()


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_of_another_type_is_a_sentence_or_drawn(field, written, tmp_path):
    folder, text = written
    for value in WRONG:
        (folder / CARD).write_text(text)
        with_value(folder, value, field)
        try:
            record = ls.read_record(folder)
        except DataError as error:
            assert str(folder) in str(error)  # noqa: PT017
        else:
            assert ls.report(record, tmp_path / "page.html").is_file()
    (folder / CARD).write_text(text)


def test_a_setting_of_another_type_is_a_sentence(written):
    folder, text = written
    for k, figure in enumerate(json.loads(text)["figures"]):
        for name in figure["settings"]:
            if name == "n":
                continue
            (folder / CARD).write_text(text)
            with_value(folder, {"a": []}, "figures", k, "settings", name)
            with pytest.raises(DataError, match="is damaged"):
                ls.read_record(folder)
    (folder / CARD).write_text(text)
