"""GGUF files as checkpoints: checked, made float32 by transformers, and kept in the store, so that it is done once."""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from layerscope.errors import ModelError, first_line, some
from layerscope.models.gguf_header import Header, check_places, is_gguf, read_header
from layerscope.models.gguf_tokenizer import open_tokenizer
from layerscope.models.headers import Room, check_counts, check_sizes
from layerscope.models.lineage import RECORD, Converted
from layerscope.progress import progress
from layerscope.store import Artifact, write_json

ENDING = ".gguf"
_LINK = "model.gguf"  # under which transformers sees the file, alone in a folder


def names_file(name: str) -> bool:
    """Whether a model argument is meant as a GGUF file."""
    return name.lower().endswith(ENDING)


def converted(path: Path, name: str) -> Path:
    """The folder in the store with the checkpoint that a GGUF file holds, in float32; made where it is not there."""
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
    """The checkpoint in a GGUF file, as a folder that is opened like any other: keyed by what the file holds."""

    kind: ClassVar[str] = "gguf"
    planned: ClassVar[bool] = False  # a model is opened to tell the key of what is computed with it
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
        about = Converted(
            file=self.path.name,
            sha256=self.sha256,
            quantisation=_quantisation(header, kinds),
            architecture=header.architecture,
        )
        write_json(folder / RECORD, {"steps": [], "learned": [], "converted": about.model_dump()})


def _kinds(name: str) -> dict[int, tuple[str, int, int]]:
    """Every kind of quantisation by its number: its name, and how many numbers and bytes a block of it has."""
    from transformers.utils import is_gguf_available

    if importlib.util.find_spec("gguf") is None or not is_gguf_available():
        raise ModelError(
            f"{name} is a GGUF file, and reading it needs a recent package gguf; install it with: "
            "pip install 'layerscope[gguf]'."
        )
    from gguf.constants import GGML_QUANT_SIZES

    return {int(kind): (kind.name, *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}


def _check(header: Header, kinds: dict[int, tuple[str, int, int]], name: str) -> None:
    """Raise a sentence for a file that is damaged, or that is not a whole model."""
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
    needed = 4 * header.numbers
    memory, disk = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"), shutil.disk_usage(folder).free
    for have, where in ((memory, "memory"), (disk, "the store's disk (LAYERSCOPE_HOME)")):
        if needed > have:
            raise ModelError(
                f"{name} takes {needed / 1e9:,.1f} GB in float32, and there are {have / 1e9:,.1f} GB in {where}."
            )


def _write(alone: Path, folder: Path, header: Header, name: str) -> None:
    """Open what the file holds, check that it is all there, and write it as a checkpoint of float32."""
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
    """The config that transformers derives from the metadata, refused where it is none of a causal language model."""
    import transformers
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING

    from layerscope.models import anatomy as anatomies

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
    anatomies.known(config)  # refuse by name before any weight is read
    names = frozenset(tensor.name for tensor in header.tensors)
    room = Room(names, header.numbers, any("position_embd" in t.name for t in header.tensors))
    check_counts(config.to_dict(), room, name, "header")
    check_sizes(config, room, lambda: None, name, "header")
    return config


def _network(alone: Path, config: Any, header: Header, name: str) -> Any:
    import torch
    from transformers import AutoModelForCausalLM

    from layerscope.models.checkpoints import check_tensors

    try:
        network, info = AutoModelForCausalLM.from_pretrained(
            alone, config=config, gguf_file=_LINK, dtype=torch.float32, local_files_only=True, output_loading_info=True
        )
    except Exception as error:  # tensors that do not fit their config fail in many ways
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
    """Raise a sentence where transformers passed over a part of the file: tensors, or how positions are scaled."""
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
    """How most of the numbers are written."""
    counts: dict[str, int] = {}
    for tensor in header.tensors:
        kind = kinds[tensor.kind][0]
        counts[kind] = counts.get(kind, 0) + tensor.numbers
    return max(counts, key=counts.__getitem__)


@contextmanager
def _bar(name: str, tensors: int) -> Iterator[None]:
    """A bar of ours in place of the one that transformers draws whether it is asked to or not."""
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
    """Let the file be read once: transformers reads it for the config, the weights and the tokenizer, 5 s each time.

    The same for the names of tensors, of which it asks for the whole table once per module.
    """
    import gguf

    slow = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map") if hasattr(gguf, name)}
    with _in_place(gguf, **{name: functools.cache(function) for name, function in slow.items()}):
        yield


@contextmanager
def _in_place(module: Any, **attributes: Any) -> Iterator[None]:
    """Other attributes of a module, for a while."""
    before = {name: getattr(module, name) for name in attributes if hasattr(module, name)}
    try:
        for name in before:
            setattr(module, name, attributes[name])
        yield
    finally:
        for name, value in before.items():
            setattr(module, name, value)
