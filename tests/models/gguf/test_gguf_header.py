"""The header of a GGUF file is not believed: every length is checked against the file."""

import struct

import numpy as np
import pytest

from layerscope.errors import ModelError
from layerscope.models.gguf import Header, TensorInfo, check_places, read_header

SIZES = {0: (1, 4), 2: (32, 18)}


def text(value):
    content = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(content)) + content


def tensor(name="w", shape=(32,), kind=0, offset=0):
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def content(entries=(), tensors=(), version=3, counts=None):
    tensors_count, entries_count = counts or (len(tensors), len(entries))
    start = b"GGUF" + struct.pack("<IQQ", version, tensors_count, entries_count)
    return start + b"".join(entries) + b"".join(tensors)


ARCHITECTURE = text("general.architecture") + struct.pack("<I", 8) + text("llama")


def read(tmp_path, data):
    path = tmp_path / "x.gguf"
    path.write_bytes(data)
    return read_header(path, "x.gguf")


def test_what_a_file_says_of_itself(tmp_path):
    entries = [
        ARCHITECTURE,
        text("llama.block_count") + struct.pack("<II", 4, 7),
        text("some.flag") + struct.pack("<I?", 7, True),
        text("words") + struct.pack("<IIQ", 9, 8, 2) + text("a") + text("bcd"),
        text("scores") + struct.pack("<IIQ3f", 9, 6, 3, 1, 2, 3),
    ]
    header = read(tmp_path, content(entries, [tensor(shape=(32, 2), kind=2, offset=64)]) + b"\0" * 1000)
    assert header.architecture == "llama"
    assert header.metadata["llama.block_count"] == 7
    assert header.metadata["some.flag"] is True
    assert header.lists == {"words": 2, "scores": 3}
    assert header.tensors == [TensorInfo("w", (32, 2), 2, 64)]
    assert header.numbers == 64
    assert header.data % 32 == 0


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "ends within its header"),
        (b"GGML" + bytes(100), "does not begin with the letters GGUF"),
        (content(version=1), "version 1 of the format"),
        (content(version=3 << 24), "big-endian"),
        (content(counts=(2**60, 0)), "announces 1,152,921,504,606,846,976 tensors"),
        (content(counts=(0, 2**60)), "entries of metadata"),
        (content([text("k")[:-1] + b"k" + struct.pack("<I", 8) + struct.pack("<Q", 2**40)]), "more than 64 MB"),
        (content([struct.pack("<Q", 2**63)], counts=(0, 1)) + bytes(50), "more than 64 MB"),
        (content([text("k") + struct.pack("<IIQ", 9, 4, 2**50)]), "more than 8,000,000 entries"),
        (content([text("k") + struct.pack("<IIQ", 9, 4, 1000)]), "ends within its header"),
        (content([text("k") + struct.pack("<IIQ", 9, 9, 1)]) + bytes(100), "of the kind 9"),
        (content([text("k") + struct.pack("<I", 77)]) + bytes(100), "of the kind 77"),
        (content([ARCHITECTURE, ARCHITECTURE]), "stands there twice"),
        (content([text(b"\xff\xfe") + struct.pack("<II", 4, 1)]), "not text"),
        (content([text("general.alignment") + struct.pack("<II", 4, 0)]), "alignment is 0"),
        (content([text("general.alignment") + struct.pack("<II", 4, 48)]), "alignment is 48"),
        (content((), [tensor(shape=(1,) * 5)]), "5 dimensions"),
        (content((), [text("w") + struct.pack("<I", 0) + bytes(12)]), "0 dimensions"),
        (content((), [tensor(shape=(0, 3))]), "is empty"),
        (content((), [tensor(), tensor()]), "two tensors have one name"),
    ],
)
def test_headers_that_lie(data, sentence, tmp_path):
    with pytest.raises(ModelError, match=sentence):
        read(tmp_path, data)


def test_a_file_cut_anywhere_in_its_header_is_a_sentence(tmp_path):
    whole = content([ARCHITECTURE, text("n") + struct.pack("<II", 4, 7)], [tensor()])
    for length in range(len(whole)):
        with pytest.raises(ModelError):
            read(tmp_path, whole[:length])


def test_damaged_bytes_never_end_in_another_error(tmp_path):
    whole = np.frombuffer(content([ARCHITECTURE, text("n") + struct.pack("<II", 4, 7)], [tensor()]), np.uint8)
    generator = np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        damaged = whole.copy()
        damaged[generator.integers(0, len(whole), 3)] = generator.integers(0, 256, 3)
        try:
            check_places(read(tmp_path, damaged.tobytes()), SIZES, "x.gguf")
        except ModelError:
            refused += 1
    assert refused > 200


@pytest.mark.parametrize(
    ("tensors", "sentence"),
    [
        ([TensorInfo("w", (32,), 5, 0)], "kind 5, which the installed package gguf does not know"),
        ([TensorInfo("w", (33,), 2, 0)], "rows of 'w' are 33 long, and blocks 32"),
        ([TensorInfo("w", (2**40, 2**20), 0, 0)], "bytes after the file does"),
        ([TensorInfo("w", (8,), 0, 992)], "ends 24 bytes after the file does"),
        ([TensorInfo("a", (64,), 0, 0), TensorInfo("b", (8,), 0, 128)], "'b' lies on another one"),
    ],
)
def test_tensors_that_lie_where_they_cannot(tensors, sentence):
    with pytest.raises(ModelError, match=sentence):
        check_places(Header({}, {}, tensors, 0, 1000), SIZES, "x.gguf")


def test_tensors_side_by_side_up_to_the_end():
    tensors = [TensorInfo("b", (32,), 2, 128), TensorInfo("a", (32,), 0, 0)]
    check_places(Header({}, {}, tensors, 0, 146), SIZES, "x.gguf")
    with pytest.raises(ModelError, match="ends 1 bytes after the file does"):
        check_places(Header({}, {}, tensors, 0, 145), SIZES, "x.gguf")
