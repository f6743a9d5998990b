"""Damage that knows the format: JSON trees, tables, treebanks, Parquet, safetensors, gzip; and plain bytes."""

from __future__ import annotations

import copy
import gzip
import io
import json
import struct
from collections.abc import Callable
from functools import cache
from pathlib import PurePath
from random import Random
from typing import Any

Mutator = Callable[[Random, bytes], bytes]

_DEEP = 5_000
_LONG = 200_000
_TEXTS = ["", " ", "\x00", "\ufeff", "a\rb", '"', "'", "../outside", "/etc/passwd", "<script>", "=1+1", "nan", "1e999"]
_TEXTS += [
    "9" * 400,
    "x" * 3000,
    "\u202e",
    "\U0001f600",
    "\ud800",
    "None",
    "[]",
    "-1",
    "float32",
    "{}",
    "%s",
    "..",
    "a/b",
]
_NUMBERS = [0, 1, -1, 2, 3, 7, 1e6, 1 << 20, 200_000_000, 1 << 62, 1 << 70, -0.5, 1e308, 1e-320]
_NOT_FINITE = [float("nan"), float("inf"), float("-inf")]
_KEYS = (
    "architectures auto_map quantization_config rope_scaling rope_parameters hidden_act num_hidden_layers torch_dtype"
)
_KEYS += (
    " dtype model_type vocab_size num_attention_heads tie_word_embeddings pruned_heads transformers_version layer_types"
)
_KEYS += (
    " is_decoder problem_type id2label label2id num_labels tokenizer_class format shards layers widths files kind x"
)


def strange(draw: Random) -> Any:
    """A value that JSON can hold and nobody expects."""
    kind = draw.randrange(8)
    if kind == 0:
        return draw.choice([None, True, False])
    if kind in (1, 2):
        return draw.choice(_NUMBERS)
    if kind == 3:
        return draw.choice(_NOT_FINITE)
    if kind == 4:
        return draw.choice([[], {}, [[]], [None], {"": None}, [1, "a", None], {"a": {"b": [1]}}, {"0": 0}])
    if kind == 5:
        return [draw.choice(_NUMBERS) for _ in range(draw.choice([1, 2, 5, 1000]))]
    return draw.choice(_TEXTS)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON tree; of long lists only the ends."""
    places = [path]
    if isinstance(value, dict):
        inside = list(value.items())
    elif isinstance(value, list):
        inside = list(enumerate(value))
    else:
        return places
    for name, part in inside if len(inside) <= 40 else inside[:20] + inside[-20:]:
        places += _places(part, (*path, name))
    return places


def changed(tree: Any, draw: Random) -> Any:
    """A JSON tree with one node replaced, removed, added or taken from elsewhere in it."""
    tree = copy.deepcopy(tree)
    *way, last = draw.choice([place for place in _places(tree) if place] or [(0,)])
    holder = tree
    for name in way:
        holder = holder[name]
    if not isinstance(holder, (dict, list)):
        return strange(draw)
    act = draw.randrange(6)
    if act == 0:
        del holder[last]
    elif act == 1 and isinstance(holder, dict):
        holder[draw.choice(_KEYS.split())] = strange(draw)
    elif act == 2:
        source = tree
        for name in draw.choice(_places(tree)):
            source = source[name]
        holder[last] = copy.deepcopy(source)
    elif act == 3 and isinstance(holder[last], (int, float)) and not isinstance(holder[last], bool):
        holder[last] = draw.choice(
            [-holder[last], holder[last] + 1, holder[last] * 1000, str(holder[last]), holder[last] / 3]
        )
    elif act == 4 and isinstance(holder, list):
        holder.insert(draw.randrange(len(holder) + 1), strange(draw))
    else:
        holder[last] = strange(draw)
    return tree


def _spelled(tree: Any) -> bytes:
    return json.dumps(tree).encode("utf-8", "surrogatepass")


def json_file(draw: Random, content: bytes) -> bytes:
    act = draw.randrange(12)
    if act == 0:
        return b"[" * _DEEP + b"]" * _DEEP
    if act == 1:
        return b'{"a":' * _DEEP + content + b"}" * _DEEP
    if act == 2:
        return plain_bytes(draw, content)
    if act == 3:
        return _spelled(strange(draw))
    try:
        return _spelled(changed(json.loads(content), draw))
    except (ValueError, RecursionError):
        return plain_bytes(draw, content)


def plain_bytes(draw: Random, content: bytes) -> bytes:
    """Cut, flip, double, insert or lose some bytes."""
    at = draw.randrange(len(content) + 1)
    before, after = content[:at], content[at:]
    flipped = bytes([after[0] ^ (1 << draw.randrange(8))]) + after[1:] if after else b""
    text = draw.choice(_TEXTS).encode("utf-8", "surrogatepass")
    marks = [b"\xef\xbb\xbf", b"\xff\xfe", b"\x00"]
    ways = (
        before,
        before + flipped,
        content + after,
        before + draw.randbytes(draw.choice([1, 4, 64])) + after,
        before + after[draw.choice([1, 8, 512]) :],
        draw.choice([b"", b"\n", b"\x80", *marks]),
        draw.choice(marks) + content,
        before + text + after,
    )
    return draw.choice(ways)


def _cells(separator: str) -> Mutator:
    def mutate(draw: Random, content: bytes) -> bytes:
        act = draw.randrange(10)
        if act < 2:
            return plain_bytes(draw, content)
        lines = content.decode("utf-8", "surrogateescape").split("\n")
        row = draw.randrange(len(lines))
        cells = lines[row].split(separator)
        cell = draw.randrange(len(cells))
        if act == 2:
            cells.pop(cell)
        elif act == 3:
            cells.insert(cell, draw.choice(_TEXTS))
        elif act == 4:
            cells[cell] = '"' + cells[cell]
        elif act == 5:
            cells[cell] = "x" * _LONG
        elif act == 6:
            cells = cells * draw.choice([2, 100])
        else:
            cells[cell] = draw.choice(_TEXTS)
        lines[row] = separator.join(cells)
        if draw.random() < 0.1:
            lines.insert(draw.randrange(len(lines)), draw.choice(lines))
        return "\n".join(lines).encode("utf-8", "surrogatepass" if "\ud800" in lines[row] else "surrogateescape")

    return mutate


def json_lines(draw: Random, content: bytes) -> bytes:
    lines = content.split(b"\n")
    row = draw.randrange(len(lines))
    lines[row] = json_file(draw, lines[row])
    return b"\n".join(lines)


def tensors(draw: Random, content: bytes) -> bytes:
    """A safetensors file: its header's tree, its numbers, or its bytes."""
    act = draw.randrange(6)
    try:
        length = struct.unpack("<Q", content[:8])[0]
        header, data = json.loads(content[8 : 8 + length]), bytearray(content[8 + length :])
    except (ValueError, struct.error, RecursionError):
        act = 0
    if act == 0:
        return plain_bytes(draw, content)
    if act == 1:
        wrong = draw.choice([0, 1, length - 1, length + 1, 1 << 40, (1 << 64) - 1])
        return struct.pack("<Q", wrong) + content[8:]
    if act == 2 and len(data) >= 8:
        at = draw.randrange(len(data) // 8) * 8
        wide = struct.pack("<d", draw.choice(_NOT_FINITE)), struct.pack("<ff", draw.choice([*_NOT_FINITE, 3e38]), 0.0)
        data[at : at + 8] = draw.choice(wide)
    else:
        header = changed(header, draw)
        if isinstance(header, dict) and isinstance(about := header.get("__metadata__"), dict) and draw.random() < 0.5:
            name = draw.choice(list(about) or ["layerscope"])
            about[name] = json_file(draw, str(about.get(name, "{}")).encode("utf-8", "replace")).decode(
                "utf-8", "replace"
            )
    text = _spelled(header)
    return struct.pack("<Q", len(text)) + text + bytes(data)


def parquet(draw: Random, content: bytes) -> bytes:
    """Other types, other columns, other metadata; or other bytes."""
    import pyarrow
    import pyarrow.parquet

    act = draw.randrange(6)
    try:
        table = pyarrow.parquet.read_table(io.BytesIO(content))
    except (OSError, ValueError):
        act = 0
    if act <= 1:
        return plain_bytes(draw, content)
    names = table.column_names
    name = draw.choice(names) if names else "x"
    if act == 2 and names:
        table = table.drop([name])
    elif act == 3 and table.schema.metadata:
        about = {key: json_file(draw, value) for key, value in table.schema.metadata.items()}
        table = table.replace_schema_metadata(about)
    elif act == 4:
        table = table.slice(0, draw.choice([0, 1, max(table.num_rows - 1, 0)]))
    else:
        values = [draw.choice([None, strange(draw)]) if draw.random() < 0.5 else None for _ in range(table.num_rows)]
        column = _column(draw, values, table.num_rows)
        table = table.set_column(names.index(name), name, column) if names else table.append_column(name, column)
    file = io.BytesIO()
    pyarrow.parquet.write_table(table, file)
    return file.getvalue()


def _column(draw: Random, values: list[Any], rows: int) -> Any:
    """A column of a type that the reader may not expect."""
    import datetime
    import decimal

    import pyarrow

    try:
        return pyarrow.array(values)
    except (ValueError, TypeError, OverflowError, pyarrow.ArrowException):
        kinds = [b"\xff", 1.5, float("nan"), datetime.datetime(2020, 1, 1), decimal.Decimal("1.5"), [1], {"a": 1}, "x"]
        return pyarrow.array([draw.choice(kinds)] * rows)


@cache
def bomb() -> bytes:
    """One field of 200 MB in 1 MB."""
    return gzip.compress(b"text,label\n" + b"a" * (200 << 20) + b",file\n", 1, mtime=0)


def zipped(inside: Mutator) -> Mutator:
    def mutate(draw: Random, content: bytes) -> bytes:
        act = draw.randrange(12)
        if act < 4:
            return plain_bytes(draw, content)
        if act == 4:
            return bomb()
        try:
            return gzip.compress(inside(draw, gzip.decompress(content)), mtime=0)
        except (OSError, EOFError, ValueError):
            return plain_bytes(draw, content)

    return mutate


_BY_ENDING: dict[str, Mutator] = {
    ".json": json_file,
    ".csv": _cells(","),
    ".tsv": _cells("\t"),
    ".conllu": _cells("\t"),
    ".txt": _cells(" "),
    ".jsonl": json_lines,
    ".parquet": parquet,
    ".safetensors": tensors,
}


def mutator(name: str) -> Mutator:
    """What damages a file of this name."""
    path = PurePath(name)
    if path.suffix == ".gz":
        return zipped(_BY_ENDING[PurePath(path.stem).suffix])
    return _BY_ENDING.get(path.suffix, plain_bytes)
