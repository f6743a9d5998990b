"""GGUF files become checkpoints: checked, converted to float32 by transformers, and kept in the store, so once only.

The header is read first, with every length checked against the file before anything uses it. Its layout is that of
llama.cpp (docs/gguf.md of ggml): magic, version, counts, metadata, where each tensor lies. The tokenizer in a file is
tried on words of the file's own vocabulary before it is trusted.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import shutil
import struct
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, BinaryIO, ClassVar

from layerscope.errors import LayerscopeError, ModelError, device_fault, first_line, log, some
from layerscope.models.lineage import RECORD, Converted
from layerscope.models.weight_files import Room, check_counts, check_sizes
from layerscope.progress import progress
from layerscope.store import Artifact, write_json

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_LARGEST = 64 << 20  # bytes of metadata; vocabularies of 262,144 tokens take 10 MB
_ENTRIES = 8_000_000  # of all lists together; the largest vocabularies have one million, with their merges
_DIMENSIONS = 4
_STRING, _LIST, _ALIGNMENT = 8, 9, 32
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_AGAIN = "it is damaged or was not copied or downloaded to its end; fetch it again"


@dataclass(frozen=True)
class TensorInfo:
    """The entry of a tensor in the header: where it lies and how its numbers are written."""

    name: str
    shape: tuple[int, ...]
    kind: int  # ggml's number of the quantisation
    offset: int  # in the data, which begins after the header

    @property
    def numbers(self) -> int:
        return prod(self.shape)


@dataclass(frozen=True)
class Header:
    """The header of a GGUF file."""

    metadata: dict[str, str | int | float | bool]  # the entries that are not lists
    lists: dict[str, int]  # how many entries each list has
    tensors: list[TensorInfo] = field(repr=False)
    data: int  # where the data begins
    size: int  # of the file

    @property
    def architecture(self) -> str:
        return str(self.metadata.get("general.architecture", ""))

    @property
    def numbers(self) -> int:
        return sum(tensor.numbers for tensor in self.tensors)


def read_header(path: Path, name: str) -> Header:
    """Return the header of a file, or raise ModelError with why it cannot be one."""
    with path.open("rb") as file:
        return _Reader(file, path.stat().st_size, name).header()


def is_gguf(path: Path) -> bool:
    """Return whether a file begins as GGUF files do."""
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def check_places(header: Header, sizes: dict[int, tuple[int, int]], name: str) -> None:
    """Raise ModelError unless every tensor lies in the file and no two share bytes.

    Args:
        header: The header of the file.
        sizes: By kind of quantisation, the count of numbers in one of its blocks, and that of bytes.
        name: What the file is called in messages.
    """
    end, room = 0, header.size - header.data
    for tensor in sorted(header.tensors, key=lambda each: each.offset):
        if tensor.kind not in sizes:
            raise ModelError(
                f"{name} has a tensor {tensor.name[:60]!a} with weights of the kind {tensor.kind}, which the installed "
                "package gguf does not know; update it: pip install -U gguf."
            )
        block, width = sizes[tensor.kind]
        if tensor.shape[0] % block:
            raise _broken(name, f"the rows of {tensor.name[:60]!a} are {tensor.shape[0]} long, and blocks {block}")
        if tensor.offset < end:
            raise _broken(name, f"the tensor {tensor.name[:60]!a} lies on another one")
        end = tensor.offset + tensor.numbers // block * width
        if end > room:
            raise _broken(name, f"the tensor {tensor.name[:60]!a} ends {end - room:,} bytes after the file does")


class _Reader:
    """Reads the values of a header one after another, none of which may end after the file does."""

    def __init__(self, file: BinaryIO, size: int, name: str) -> None:
        self._file, self._size, self._name = file, size, name
        self._entries = 0

    def header(self) -> Header:
        """Read the whole header."""
        if self._take(4) != MAGIC:
            raise ModelError(f"{self._name} is not a GGUF file: it does not begin with the letters GGUF.")
        version = self._number("I")
        if version not in _VERSIONS:
            swapped = struct.unpack(">I", struct.pack("<I", version))[0]
            what = "its numbers are big-endian" if swapped in _VERSIONS else f"it has version {version} of the format"
            raise ModelError(f"{self._name} cannot be read: {what}; only versions 2 and 3, little-endian, are read.")
        tensors, entries = self._number("Q"), self._number("Q")
        if 24 * tensors + 13 * entries > self._size:  # what the shortest of each take
            raise _broken(self._name, f"it announces {tensors:,} tensors and {entries:,} entries of metadata")
        metadata: dict[str, str | int | float | bool] = {}
        lists: dict[str, int] = {}
        for _ in range(entries):
            key, kind = self._text(), self._number("I")
            if key in metadata or key in lists:
                raise _broken(self._name, f"{key[:60]!a} stands there twice")
            if kind == _LIST:
                lists[key] = self._skip_list()
            else:
                metadata[key] = self._value(kind)
        infos = [self._tensor() for _ in range(tensors)]
        if len({info.name for info in infos}) < len(infos):
            raise _broken(self._name, "two tensors have one name")
        alignment = metadata.get("general.alignment", _ALIGNMENT)
        if isinstance(alignment, bool) or not isinstance(alignment, int) or alignment.bit_count() != 1:
            raise _broken(self._name, f"its alignment is {alignment!a}")
        return Header(metadata, lists, infos, -(-self._file.tell() // alignment) * alignment, self._size)

    def _take(self, count: int) -> bytes:
        """Read `count` bytes, or raise ModelError where the header would be too long or the file ends."""
        if self._file.tell() + count > _LARGEST:
            raise _broken(self._name, f"its metadata would take more than {_LARGEST >> 20} MB")
        content = self._file.read(count)
        if len(content) < count:
            raise _broken(self._name, "it ends within its header")
        return content

    def _number(self, code: str) -> int:
        return int(struct.unpack(f"<{code}", self._take(struct.calcsize(code)))[0])

    def _text(self) -> str:
        try:
            return self._take(self._number("Q")).decode("utf-8")
        except UnicodeDecodeError:
            raise _broken(self._name, "a name in its header is not text") from None

    def _value(self, kind: int) -> str | int | float | bool:
        if kind == _STRING:
            return self._text()
        code = self._code(kind)
        value: int | float | bool = struct.unpack(f"<{code}", self._take(struct.calcsize(code)))[0]
        return value

    def _code(self, kind: int) -> str:
        if kind not in _SCALARS:
            raise _broken(self._name, f"a value in its header is of the kind {kind}")
        return _SCALARS[kind]

    def _skip_list(self) -> int:
        """Pass over a list and return how many entries it has."""
        kind, count = self._number("I"), self._number("Q")
        self._entries += count
        if self._entries > _ENTRIES:
            raise _broken(self._name, f"lists in its header have more than {_ENTRIES:,} entries")
        if kind == _STRING:
            for _ in range(count):
                self._take(self._number("Q"))
        else:
            self._take(count * struct.calcsize(self._code(kind)))
        return count

    def _tensor(self) -> TensorInfo:
        """Read the entry of one tensor."""
        name, dimensions = self._text(), self._number("I")
        if not 1 <= dimensions <= _DIMENSIONS:
            raise _broken(self._name, f"the tensor {name[:60]!a} has {dimensions} dimensions")
        shape = tuple(self._number("Q") for _ in range(dimensions))
        if not all(shape):
            raise _broken(self._name, f"the tensor {name[:60]!a} is empty")
        return TensorInfo(name, shape, self._number("I"), self._number("Q"))


def _broken(name: str, what: str) -> ModelError:
    """Return the error for a damaged file."""
    return ModelError(f"{name} cannot be read ({what}): {_AGAIN}.")


_TOKENS = "tokenizer.ggml.tokens"
_SPACES = ("Ġ", "▁")  # the marks of a space in front of a token
_LOOKED_AT, _SAMPLED, _FEWEST_WORDS = 20_000, 200, 20  # tokens and words that a tokenizer is tried on
_READ = 0.5  # the share of them that it must give as the single tokens that they are


def open_tokenizer(file: Path, header: Header, name: str) -> Any:
    """Return the tokenizer in a file, or None where it has none that can be opened."""
    import transformers
    from transformers import AutoTokenizer

    if not header.lists.get(_TOKENS):
        return None
    try:
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True)
        _follow_bos(tokenizer, header)
        words = _words(file)
        if len(words) >= _FEWEST_WORDS and share_read(tokenizer, words) < _READ:
            raise ModelError(
                f"transformers {transformers.__version__} reads the tokenizer in {name} wrongly: of {len(words)} words "
                f"that are single tokens there, it gives {share_read(tokenizer, words):.0%} as that token; another "
                "version may read it (pip install -U transformers), or give the checkpoint that it was made from."
            )
        return tokenizer
    except BaseException as error:  # the tokenizers library panics on some broken vocabularies, outside of Exception
        if isinstance(error, (KeyboardInterrupt, SystemExit, LayerscopeError)):
            raise
        log.warning("The tokenizer in %s cannot be opened (%s); the model has none.", name, first_line(error))
        return None


def _words(path: Path) -> dict[str, int]:
    """Return words of plain letters that are single tokens of the file's vocabulary, drawn evenly from all of it."""
    import gguf

    field = gguf.GGUFReader(path).fields[_TOKENS]
    whole = len(field.data)
    words: dict[str, int] = {}
    for index in range(0, whole, max(whole // _LOOKED_AT, 1)):
        token = bytes(field.parts[field.data[index]]).decode("utf-8", "replace")
        if token[:1] in _SPACES and len(token) > 3 and token[1:].isascii() and token[1:].isalpha():
            words[token[1:]] = index
    step = max(len(words) // _SAMPLED, 1)
    return dict(list(words.items())[::step])


def share_read(tokenizer: Any, words: Mapping[str, int]) -> float:
    """Return the share of words, single tokens all, that a tokenizer gives as that token, with or without a space."""
    right = 0
    for word, index in words.items():
        ids = [list(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in (f" {word}", word)]
        right += [index] in ids
    return right / len(words)


def _follow_bos(tokenizer: Any, header: Header) -> None:
    """Make the tokenizer put the first token (BOS) before a text where the file says so, and not where it says not."""
    from tokenizers import processors

    asked, first = header.metadata.get("tokenizer.ggml.add_bos_token"), tokenizer.bos_token_id
    if not isinstance(asked, bool) or first is None or not getattr(tokenizer, "is_fast", False):
        return
    ids = tokenizer("a")["input_ids"]
    if (len(ids) > 0 and ids[0] == first) is asked:
        return
    if hasattr(tokenizer, "add_bos_token"):
        tokenizer.add_bos_token = asked
    bos = tokenizer.bos_token
    template = processors.TemplateProcessing(f"{bos} $A", f"{bos} $A {bos} $B:1", [(bos, first)])
    tokenizer.backend_tokenizer.post_processor = template if asked else processors.ByteLevel(trim_offsets=False)


ENDING = ".gguf"
_LINK = "model.gguf"  # the name under which transformers sees the file, alone in a folder


def names_file(name: str) -> bool:
    """Return whether a model argument is meant as a GGUF file."""
    return name.lower().endswith(ENDING)


def converted(path: Path, name: str) -> Path:
    """Return the folder in the store with a GGUF file's checkpoint in float32, which is made if it is not there."""
    if not os.path.isfile(path):
        raise ModelError(
            f"There is no file {str(path)!r}; a GGUF file is opened from the disk, so give its path, or download it "
            "first: hf download ORG/NAME FILE.gguf."
        )
    try:
        if not is_gguf(path):
            raise ModelError(f"{name} is not a GGUF file: it does not begin with the letters GGUF.")
        return Conversion(path, name).produce()
    except OSError as error:
        if str(error.filename or "") != str(path):
            raise
        raise ModelError(f"{name} cannot be read: {error.strerror}.") from error


class Conversion(Artifact):
    """The artifact with a GGUF file's checkpoint, a folder that is opened like any other, keyed by the file's hash."""

    kind: ClassVar[str] = "gguf"
    planned: ClassVar[bool] = False  # a model must be opened to know the keys of what is computed with it
    version: ClassVar[int] = 2

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name

    @cached_property
    def sha256(self) -> str:
        """The file's hash, as the hub shows it beside its files."""
        with self.path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def spec(self) -> dict[str, Any]:
        import transformers

        return {"sha256": self.sha256, "transformers": transformers.__version__}

    def build(self, folder: Path) -> None:
        kinds = _kinds(self.name)
        header = read_header(self.path, self.name)
        _check(header, kinds, self.name)
        _check_room(header, folder, self.name)
        for left in list(folder.iterdir()):  # of an earlier try
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        with tempfile.TemporaryDirectory() as alone, _bar(self.name, len(header.tensors)), _read_once():
            # Beside the file may lie others that transformers would take for its config, tokenizer or adapter.
            (Path(alone) / _LINK).symlink_to(self.path.resolve())
            _write(Path(alone), folder, header, self.name)
        source = Converted(
            file=self.path.name,
            sha256=self.sha256,
            quantisation=_quantisation(header, kinds),
            architecture=header.architecture,
        )
        write_json(folder / RECORD, {"steps": [], "learned": [], "converted": source.model_dump()})


def _kinds(name: str) -> dict[int, tuple[str, int, int]]:
    """Return every kind of quantisation by number: its name, and how many numbers and bytes a block of it has."""
    from transformers.utils import is_gguf_available

    if importlib.util.find_spec("gguf") is None or not is_gguf_available():
        raise ModelError(
            f"{name} is a GGUF file, and reading it needs a recent package gguf; install it with: "
            "pip install 'layerscope[gguf]'."
        )
    from gguf.constants import GGML_QUANT_SIZES

    return {int(kind): (kind.name, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}


def _check(header: Header, kinds: dict[int, tuple[str, int, int]], name: str) -> None:
    """Raise ModelError for a file that is damaged, or that is not a whole model."""
    check_places(header, {kind: (block, width) for kind, (_, block, width) in kinds.items()}, name)
    if not header.architecture:
        raise ModelError(f"{name} does not say which architecture its weights are of (general.architecture).")
    if header.metadata.get("general.type", "model") != "model":
        what = str(header.metadata["general.type"])
        raise ModelError(f"{name} holds {some([what])!a} (general.type) and not a model; give the model's own file.")
    parts = header.metadata.get("split.count", 0)
    if isinstance(parts, int) and parts > 1:
        raise ModelError(
            f"{name} is one of {parts} parts of a model; join them with llama.cpp's llama-gguf-split --merge, and give "
            "the whole file."
        )


def _check_room(header: Header, folder: Path, name: str) -> None:
    """Raise ModelError where the model in float32 would not fit into memory or onto the store's disk."""
    needed = 4 * header.numbers
    memory, disk = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), shutil.disk_usage(folder).free
    for have, where in ((memory, "memory"), (disk, "the store's disk (LAYERSCOPE_HOME)")):
        if needed > have:
            raise ModelError(
                f"{name} takes {needed / 1e9:,.1f} GB in float32, and there are {have / 1e9:,.1f} GB in {where}."
            )


def _write(alone: Path, folder: Path, header: Header, name: str) -> None:
    """Open the file in the folder `alone`, check that all of it was read, and write it as a float32 checkpoint."""
    from layerscope.models.checkpoints import quiet

    with quiet():
        config = _config(alone, header, name)
        network = _network(alone, config, header, name)
        network.hf_quantizer, network.is_quantized = None, False
        if hasattr(network.config, "quantization_config"):
            del network.config.quantization_config
        network.save_pretrained(folder, max_shard_size="2GB")
        tokenizer = open_tokenizer(alone / _LINK, header, name)
        if tokenizer is not None:
            tokenizer.save_pretrained(folder)


def _config(alone: Path, header: Header, name: str) -> Any:
    """Return the config that transformers derives from the metadata; raise ModelError if it is not a causal LM's."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    from layerscope.models.architecture import known_architecture

    kind = f"{header.architecture[:60]!a}"
    try:
        config = transformers.AutoConfig.from_pretrained(alone, gguf_file=_LINK, local_files_only=True)
    except Exception as error:  # metadata of a wrong type fails in as many ways as there are families
        if "not supported" in str(error):
            raise ModelError(
                f"{name} is a {kind}, an architecture that transformers {transformers.__version__} does not open from "
                "GGUF; give the checkpoint that it was made from."
            ) from error
        raise ModelError(f"The header of {name} is not that of a {kind} ({first_line(error)}).") from error
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        raise ModelError(f"{name} is a {kind}, which is not a causal language model; only those are opened from GGUF.")
    known_architecture(config)  # refuse by name before any weight is read
    names = frozenset(tensor.name for tensor in header.tensors)
    room = Room(names, header.numbers, any("position_embd" in t.name for t in header.tensors))
    check_counts(config.to_dict(), room, name, "header")
    check_sizes(config, room, lambda: None, name, "header")
    return config


def _network(alone: Path, config: Any, header: Header, name: str) -> Any:
    """Return the network in float32, or raise ModelError where transformers cannot open it or passes over a part."""
    import torch
    from transformers import AutoModelForCausalLM

    from layerscope.models.checkpoints import check_tensors

    try:
        network, info = AutoModelForCausalLM.from_pretrained(
            alone, config=config, gguf_file=_LINK, dtype=torch.float32, local_files_only=True, output_loading_info=True
        )
    except Exception as error:  # tensors that do not fit their config fail in many ways
        if device_fault(error) is not None:
            raise
        raise ModelError(
            f"transformers cannot open the weights of {name} ({first_line(error)}): the file is damaged, or of a kind "
            "that it does not know; give the checkpoint that it was made from."
        ) from error
    check_tensors(network, info, name, "header")
    _check_all_read(network, header, name)
    broken = [key for key, value in network.state_dict().items() if not bool(torch.isfinite(value).all())]
    if broken:
        raise ModelError(
            f"{name} holds weights that are not numbers ({len(broken)} tensors, such as {min(broken)}): it is damaged; "
            "fetch it again."
        )
    return network


def _check_all_read(network: Any, header: Header, name: str) -> None:
    """Raise ModelError where transformers passed over a part of the file: tensors, or how positions are scaled."""
    read = sum(parameter.numel() for parameter in network.parameters())
    left = header.numbers - read
    if left > 0:
        same = [tensor.name for tensor in header.tensors if tensor.numbers == left]
        such = f", as many as its tensor {same[0][:60]!a} has" if same else ""
        raise ModelError(
            f"{name} holds {header.numbers:,} numbers, and transformers reads {read:,} of them: {left:,} would be "
            f"left out{such}, and the model would give other answers; give the checkpoint that it was made from."
        )
    scaling = header.metadata.get(f"{header.architecture}.rope.scaling.type", "none")
    rope = getattr(network.config, "rope_parameters", None)
    if scaling != "none" and isinstance(rope, dict) and rope.get("rope_type", "default") == "default":
        raise ModelError(
            f"{name} scales its positions ({str(scaling)[:60]!a}), which transformers does not read from GGUF, and the "
            "model would give other answers; give the checkpoint that it was made from."
        )


def _quantisation(header: Header, kinds: dict[int, tuple[str, int, int]]) -> str:
    """Return the name of the quantisation that most of the numbers have."""
    counts: dict[str, int] = {}
    for tensor in header.tensors:
        kind = kinds[tensor.kind][0]
        counts[kind] = counts.get(kind, 0) + tensor.numbers
    return max(counts, key=counts.__getitem__)


@contextmanager
def _bar(name: str, tensors: int) -> Iterator[None]:
    """Show a bar of ours in place of the one that transformers draws whether it is asked to or not."""
    from transformers import modeling_gguf_pytorch_utils as reading

    with progress(f"making {Path(name).name} float32", tensors, "tensors") as advance:

        def each(items: Iterable[Any], **_: Any) -> Iterator[Any]:
            for item in items:
                yield item
                advance(1)

        with _in_place(reading, tqdm=each):
            yield


@contextmanager
def _read_once() -> Iterator[None]:
    """Cache what is read of the file: transformers reads it for the config, weights and tokenizer, 5 s each time.

    The table of tensor names is cached too, since transformers asks for all of it once per module.
    """
    import gguf

    slow = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map") if hasattr(gguf, name)}
    with _in_place(gguf, **{name: functools.cache(function) for name, function in slow.items()}):
        yield


@contextmanager
def _in_place(module: Any, **attributes: Any) -> Iterator[None]:
    """Replace attributes of a module while the block runs, as far as it has them."""
    before = {name: getattr(module, name) for name in attributes if hasattr(module, name)}
    try:
        for name in before:
            setattr(module, name, attributes[name])
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)
