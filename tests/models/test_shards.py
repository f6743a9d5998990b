"""Tensors streamed from file to file are the same tensors, and what cannot be one is refused."""

import json
import struct

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file

from layerscope.errors import DataError
from layerscope.models.shards import index_of, narrow, shard_names, shards, tensor_places, write_shard

TENSORS = {
    "a.weight": torch.randn(3, 5, generator=torch.Generator().manual_seed(0)),
    "b.flag": torch.tensor([True, False, True]),
    "b.half": torch.arange(7, dtype=torch.bfloat16),
    "c.empty": torch.zeros(0, 4),
    "c.scalar": torch.tensor(3, dtype=torch.int64),
    "d.eight": torch.arange(5, dtype=torch.float32).to(torch.float8_e4m3fn),
}


@pytest.fixture
def source(tmp_path):
    save_file(TENSORS, tmp_path / "source.safetensors")
    return tmp_path / "source.safetensors"


def test_a_streamed_file_holds_the_same_tensors_under_their_new_names(source, tmp_path):
    places = tensor_places(source)
    assert places.keys() == TENSORS.keys()
    checksums = write_shard(tmp_path / "copy.safetensors", {f"x.{name}": place for name, place in places.items()})
    again = load_file(tmp_path / "copy.safetensors")
    assert again.keys() == {f"x.{name}" for name in TENSORS}
    for name, tensor in TENSORS.items():
        assert again[f"x.{name}"].dtype == tensor.dtype
        assert again[f"x.{name}"].shape == tensor.shape
        raw, expected = (t.reshape(-1).view(torch.uint8) for t in (again[f"x.{name}"], tensor))
        assert torch.equal(raw, expected)
    copied = tensor_places(tmp_path / "copy.safetensors")
    assert {name: place.checksum() for name, place in copied.items()} == checksums
    assert {name: place.checksum() for name, place in places.items()} == {n[2:]: c for n, c in checksums.items()}
    with safe_open(tmp_path / "copy.safetensors", "pt") as file:
        assert file.metadata() == {"format": "pt"}


def test_every_tensor_begins_where_its_numbers_may(source, tmp_path):
    write_shard(tmp_path / "copy.safetensors", tensor_places(source))
    for name, place in tensor_places(tmp_path / "copy.safetensors").items():
        assert place.start % TENSORS[name].element_size() == 0, name


def test_a_checksum_tells_bytes_shape_and_dtype_apart(tmp_path):
    same = torch.arange(6, dtype=torch.int32)
    others = {
        "a": same,
        "b": same.clone().reshape(2, 3),
        "c": same.clone().view(torch.float32),
        "d": same + 1,
        "e": same.clone(),
    }
    save_file(others, tmp_path / "t.safetensors")
    sums = {name: place.checksum() for name, place in tensor_places(tmp_path / "t.safetensors").items()}
    assert sums["a"] == sums["e"]
    assert len(set(sums.values())) == 4


def test_files_are_filled_in_order_up_to_their_size(source):
    places = tensor_places(source)
    parts = shards(places, 64)
    assert [name for part in parts for name in part] == list(places)
    assert all(sum(place.size for place in part.values()) <= 64 for part in parts)
    assert [len(part) for part in shards(places, 1)][:1] == [1]
    names = shard_names(len(parts))
    index = index_of(names, parts)
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in TENSORS.values())
    assert index["weight_map"]["a.weight"] == names[next(k for k, part in enumerate(parts) if "a.weight" in part)]
    assert shard_names(1) == ["model.safetensors"]
    assert shard_names(2)[1] == "model-00002-of-00002.safetensors"


def _file(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "its header claims to have 0 bytes"),
        (struct.pack("<Q", 10**12) + b"{}", "its header claims to have 1000000000000 bytes"),
        (_file(b"[1]"), "its header is not an object"),
        (_file(b"{nonsense"), "damaged"),
        (_file({"a": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, b"1234"), "does not take 4 bytes"),
        (_file({"a": {"dtype": "F99", "shape": [1], "data_offsets": [0, 4]}}, b"1234"), "dtype F99"),
        (_file({"a": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, b"12345678"), "does not begin where"),
        (_file({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"12345"), "5 bytes of tensors"),
        (_file({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}), "0 bytes of tensors"),
        (_file({"a": {"dtype": "F32", "shape": [-1], "data_offsets": [0, 0]}}), "does not take 0 bytes"),
        (_file({"a": 3}), "damaged"),
        (_file({"a": {"shape": [1]}}), "damaged"),
    ],
)
def test_a_file_that_is_not_what_it_says_is_a_sentence(tmp_path, content, reason):
    (tmp_path / "t.safetensors").write_bytes(content)
    with pytest.raises(DataError, match=reason):
        tensor_places(tmp_path / "t.safetensors")


def test_a_file_that_is_not_there_is_a_sentence(tmp_path):
    with pytest.raises(DataError, match="is not there"):
        tensor_places(tmp_path / "t.safetensors")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_file_is_narrowed_in_its_place(source, dtype):
    narrow(source, dtype, but=["a.weight"])
    again = load_file(source)
    assert again.keys() == TENSORS.keys()
    assert list(source.parent.iterdir()) == [source]
    for name, tensor in TENSORS.items():
        floats = tensor.dtype in (torch.float32, torch.bfloat16) and name != "a.weight"
        expected = tensor.to(dtype) if floats else tensor
        assert again[name].dtype == expected.dtype
        assert torch.equal(again[name].reshape(-1).view(torch.uint8), expected.reshape(-1).view(torch.uint8))


def test_narrowed_numbers_are_those_that_torch_gives(tmp_path, monkeypatch):
    monkeypatch.setattr("layerscope.models.shards._CHUNK", 64)  # bytes: a tensor comes in several parts
    numbers = torch.randn(7, 31, generator=torch.Generator().manual_seed(0))
    save_file({"numbers": numbers}, tmp_path / "file.safetensors")
    narrow(tmp_path / "file.safetensors", torch.bfloat16)
    assert torch.equal(load_file(tmp_path / "file.safetensors")["numbers"], numbers.bfloat16())
