"""Whatever is wrong with a saved file is one sentence."""

import json
import os

import pytest
import torch
from pydantic import Field
from safetensors.torch import save_file

from layerscope.errors import DataError, ModelError
from layerscope.store import Saved, inside, open_tensors, parse_json, read_json, read_object
from layerscope.store.validated import MOST_BYTES


class Card(Saved):
    name: str
    n: int = Field(ge=0, lt=1 << 40)
    widths: list[int] = Field(default_factory=list)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "Expecting value"),
        (b"{", "Expecting property name"),
        (b"\xff\xfe{}", "not UTF-8 text: byte 0"),
        (b"\xef\xbb\xbf{}", "BOM"),
        (b"[1]", "valid dictionary"),
        (b"null", "valid dictionary"),
        (b'{"name": "a"}', "n: field required"),
        (b'{"name": "a", "n": "3"}', "n: input should be a valid integer"),
        (b'{"name": "a", "n": true}', "n: input should be a valid integer"),
        (b'{"name": "a", "n": 1.5}', "n: input should be a valid integer"),
        (b'{"name": "a", "n": -1}', "n: input should be greater than or equal to 0"),
        (b'{"name": "a", "n": 1%s}' % (b"0" * 30), "n: input should be less than"),
        (b'{"name": "a", "n": 1%s}' % (b"0" * 400), "whole number of 401 digits"),
        (b'{"name": "a", "n": 1%s}' % (b"0" * 5000), "whole number of 5001 digits"),
        (b'{"name": "a", "n": 1, "widths": [1, "x"]}', "widths.1: input should be a valid integer"),
        (b'{"name": "\\ud800", "n": 1}', "half a character"),
        (b'{"name": "a", "n": 1, "\\udfff": 1}', "half a character"),
        (b'{"name": "a", "n": 1, "x": %s1%s}' % (b"[" * 100, b"]" * 100), "nested more than 64 deep"),
        (b'{"name": "a", "n": 1, "x": %s' % (b"[" * 100_000), "nested more than 64 deep"),
        (b'{"name": "a", "n": 1, "x": %s' % (b'{"a":' * 100_000), "nested more than 64 deep"),
    ],
)
def test_json_that_is_not_what_it_should_be(content, reason, tmp_path):
    (tmp_path / "card.json").write_bytes(content)
    with pytest.raises(ModelError, match=r"card.json is (damaged|not JSON) ") as caught:
        read_json(tmp_path / "card.json", Card, error=ModelError, way_out="make it again")
    assert reason in str(caught.value)
    assert str(caught.value).endswith("; make it again.")
    assert len(str(caught.value)) < 400


def test_json_that_is_as_it_should_be(tmp_path):
    (tmp_path / "card.json").write_text(json.dumps({"name": "é", "n": 3, "other": [None, 1e300]}))
    assert read_json(tmp_path / "card.json", Card) == Card(name="é", n=3)
    assert read_object(tmp_path / "card.json")["other"] == [None, 1e300]
    assert parse_json('"\\ud83d\\ude00"') == "\N{GRINNING FACE}"
    with pytest.raises(DataError, match="not a JSON object"):
        read_object(_written(tmp_path / "list.json", "[]"))


def _written(path, text):
    path.write_text(text)
    return path


def test_what_is_no_file_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name, reason in (
        ("pipe", "not a plain file"),
        ("folder", "Is a directory|not a plain file"),
        ("x", "not there"),
    ):
        with pytest.raises(DataError, match=reason):
            read_json(tmp_path / name, Card)
        with pytest.raises(DataError, match=reason):
            open_tensors(tmp_path / name)
    with pytest.raises(DataError, match="File name too long"):
        read_json(tmp_path / ("x" * 300), Card)
    with open(tmp_path / "large", "wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(DataError, match="more than 64 MiB"):
        read_json(tmp_path / "large", Card)


@pytest.mark.parametrize("name", ["", ".", "..", "../a", "a/b", "/etc/passwd", "a\0b", "\ud800", "link"])
def test_only_files_of_the_folder_are_read(name, tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    (tmp_path / "outside").write_text("secret")
    (folder / "link").symlink_to(tmp_path / "outside")
    with pytest.raises(DataError, match="only files of a folder are read"):
        inside(folder, name)
    (folder / "file").write_text("x")
    (folder / "alias").symlink_to("file")
    assert inside(folder, "file").read_text() == inside(folder, "alias").read_text() == "x"


def test_tensors_that_cannot_be_read_are_a_sentence(tmp_path):
    good = tmp_path / "good.safetensors"
    save_file({"a": torch.zeros(3, 2), "b": torch.zeros(())}, good, {"about": "x"})
    content = good.read_bytes()
    for damaged in (
        b"",
        b"{}",
        content[:20],
        content[:-1],
        b"\xff" * 8 + content[8:],
        content[:9] + b"\xff" + content[10:],
    ):
        (tmp_path / "bad").write_bytes(damaged)
        with pytest.raises(ModelError, match=r"is damaged or not a safetensors file .*; fetch it again"):
            open_tensors(tmp_path / "bad", error=ModelError, way_out="fetch it again")
    file = open_tensors(good)
    assert sorted(file.names) == ["a", "b"]
    assert (file.shape("a"), file.dtype("a"), file.metadata) == ((3, 2), "F32", {"about": "x"})
    assert file.tensor("a", 1, 3).shape == (2, 2)
    with pytest.raises(DataError, match="damaged"):
        file.tensor("missing")
    file.require({"a": (None, 2), "b": ()})
    with pytest.raises(DataError, match=r"a has shape \(3, 2\) where \(any, 3\) is needed"):
        file.require({"a": (None, 3)})
    with pytest.raises(DataError, match="holds no c"):
        file.require({"c": ()})


def test_the_row_that_is_not_finite_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr("layerscope.store.validated._ROWS", 4)
    values = torch.zeros(10, 3)
    values[6, 1] = torch.inf
    save_file({"a": values, "one": torch.tensor(torch.nan), "fine": torch.ones(2)}, tmp_path / "f")
    file = open_tensors(tmp_path / "f")
    file.finite("fine", "layer 0")
    with pytest.raises(DataError, match="layer 3, row 106 holds a value that is not a finite number"):
        file.finite("a", "layer 3", first=100)
    with pytest.raises(DataError, match="the weight, row 0"):
        file.finite("one", "the weight")
