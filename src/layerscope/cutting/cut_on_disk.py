"""`ls.cut_folder`: cuts a checkpoint on disk, tensor by tensor, without building the network."""

from __future__ import annotations

import re
import shutil
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from layerscope.cutting.cut import check_against_replay, check_buildable
from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.save import describe_folder
from layerscope.errors import NOTICE, InputError, ModelError, log
from layerscope.evaluation.score import Score
from layerscope.models import Model, load
from layerscope.models.architecture import kept_fields
from layerscope.models.checkpoints import LARGE, open_network
from layerscope.models.devices import free_memory
from layerscope.models.extras import NO_WEIGHTS
from layerscope.models.lineage import ORIGIN, RECORD, remember
from layerscope.models.load import base_of, load_shape
from layerscope.models.sentence_embedding import is_embedding_folder, network_folder, read_embedding
from layerscope.models.shards import TensorPlace, index_of, shard_names, shards, tensor_places, write_shard
from layerscope.models.sources import Source, fetch, parse
from layerscope.models.weight_files import INDEX, folder_files, weight_files
from layerscope.progress import progress
from layerscope.store import atomic_folder, check_free, digest, read_object, write_json

MOST = 2_000_000_000  # bytes of a file of weights
_FILES = 4  # that are written at once
_ROOM = 0.5  # of the memory that is free, for reopening and comparing
# What goes with the weights, beside the config: how texts become tokens, and how to generate.
_ALONG = (
    *("tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json", "*.model", "spiece.*"),
    *("chat_template*", "generation_config.json", "bpe.codes", "*.tiktoken"),
)


def cut_folder(folder: str | Path, plan: LayerPlan, path: str | Path) -> Path:
    """Cut a checkpoint on disk: tensors are copied file by file, and the network is never built.

    Kept blocks get their new numbers, lists with an entry per block are cut in the config, weights that were tied stay
    tied. Every tensor that was written is read again and compared by its hash. Models of up to a billion parameters are
    opened and compared by what they compute, too, where both fit in memory; of larger ones transformers compares the
    names.

    Args:
        folder: A checkpoint: a folder, a hub id, `id@revision`, `garden:<name>`.
        plan: Which blocks stay.
        path: The folder to write. An existing one is replaced only if layerscope saved it, and never that of the model.

    Returns:
        The folder.

    Example:
        >>> import tempfile, layerscope as ls
        >>> smaller = ls.cut_folder("garden:bert-s0", ls.LayerPlan([1, 3]), f"{tempfile.mkdtemp()}/smaller")
        >>> ls.load(smaller).depth
        2
    """
    target = Path(path)
    FolderCut(folder).write(plan, target)
    return target


class FolderCut:
    """A checkpoint on disk, ready to be cut there; raises InputError or ModelError where that cannot be done.

    Args:
        folder: As in `cut_folder`.
    """

    def __init__(self, folder: str | Path) -> None:
        self.name, self.asked = str(folder), parse(str(folder))
        if self.asked.random:
            raise InputError(f"{folder} has no weights on disk; cut it in memory: ls.cut(model, plan), then ls.save.")
        self.outer = fetch(self.asked)
        self.inner = network_folder(self.outer)
        self.model = load_shape(self.asked, self.outer)
        self.places = read_places(self.inner, self.asked.name)

    def select(self, plan: LayerPlan) -> dict[str, TensorPlace]:
        """Return the tensors that a plan keeps, under their new names; raise ModelError where there are none."""
        plan.check(self.model.depth)
        check_buildable(self.model, plan)
        return renumbered(self.places, self.model, plan)

    def write(self, plan: LayerPlan, target: Path, scores: Sequence[Score] = ()) -> bool:
        """Write the smaller checkpoint; return whether it was also opened and compared by what it computes.

        `scores` are of the whole model's blocks under this plan, for the card.
        """
        kept = self.select(plan)
        check_free(target, RECORD, self.outer)
        _check_room(kept, target)
        with atomic_folder(target, RECORD) as staging:
            checksums = _write_weights(kept, staging)
            write_json(staging / "config.json", _smaller_config(self.inner / "config.json", self.model, plan))
            _copy_along(folder_files(self.inner, self.outer), staging)
            if is_embedding_folder(self.outer):
                read_embedding(self.outer, self.asked.name, self.model.width).write(staging)
            _describe(self.model, plan, kept, checksums, (self.asked, self.outer), staging, scores)
            return _compare(self.name, staging, plan, self.places)


def read_places(folder: Path, name: str) -> dict[str, TensorPlace]:
    """Return every tensor of a checkpoint's files by its name."""
    files = [tensor_places(file, ModelError) for file in weight_files(folder, name)]
    return {tensor: place for places in files for tensor, place in places.items()}


def renumbered(places: Mapping[str, TensorPlace], model: Model, plan: LayerPlan) -> dict[str, TensorPlace]:
    """Return the tensors that stay, under their new names.

    Checkpoints name blocks with the body's prefix, without one, or with another than the network has (Nemotron-H).
    """
    if model.architecture.shared:
        return dict(places)
    lists = "|".join(map(re.escape, (model.architecture.blocks, *model.architecture.beside)))
    own = f"(?:{re.escape(model.network.base_model_prefix)}\\.)?"
    first = (re.match(f"(\\w+\\.)(?:{lists})\\.\\d+\\.", name) for name in places)
    others = {re.escape(match[1]) for match in first if match}
    # One prefix for all: where there are several, such as those of a text and an image part, which is meant is unknown.
    for prefix in (own, *(others if len(others) == 1 else ())):
        pattern = re.compile(f"({prefix}(?:{lists})\\.)(\\d+)(\\..+)")
        matches = {name: pattern.fullmatch(name) for name in places}
        numbers = {int(match[2]) for match in matches.values() if match}
        if numbers:
            break
    if numbers != set(range(model.depth)):
        raise ModelError(
            f"{model.name} ({model.architecture.family}) is said to have {model.depth} blocks, and its files name "
            f"{len(numbers)} under {model.architecture.blocks}: they cannot be renumbered on disk. Cut it in memory: "
            "ls.cut."
        )
    number = {block - 1: k for k, block in enumerate(plan.keep)}
    kept = {}
    for name, place in places.items():
        match = matches[name]
        if match is None:
            kept[name] = place
        elif int(match[2]) in number:
            kept[f"{match[1]}{number[int(match[2])]}{match[3]}"] = place
    return kept


def _check_room(kept: Mapping[str, TensorPlace], target: Path) -> None:
    """Raise InputError where the disk has too little room for the tensors."""
    needed, free = sum(place.size for place in kept.values()), shutil.disk_usage(target.parent).free
    if needed > free:
        raise InputError(
            f"{target} would take {needed / 1e9:.1f} GB and {target.parent} has {free / 1e9:.1f} GB left; free some "
            "space or give another path."
        )


def _write_weights(kept: Mapping[str, TensorPlace], folder: Path) -> dict[str, str]:
    """Write the files of weights, and return the checksum of every tensor.

    Each file is read again when it is written, and every tensor is compared with what it was copied from.
    """
    parts, checksums = shards(kept, MOST), dict[str, str]()
    names = shard_names(len(parts))
    total = sum(place.size for place in kept.values())

    def write(name: str, part: Mapping[str, TensorPlace]) -> dict[str, str]:
        copied = write_shard(folder / name, part)
        again = {tensor: place.checksum() for tensor, place in tensor_places(folder / name, ModelError).items()}
        if again != copied:
            raise ModelError(f"{name} is not what was written to it: the disk is failing; nothing was saved.")
        return copied

    # Reading, hashing and writing all leave the interpreter to other threads.
    threads = ThreadPoolExecutor(min(len(parts), _FILES) or 1)
    try:
        with progress(f"writing {folder.parent.name}", total, "bytes") as advance:
            for part, copied in zip(parts, threads.map(write, names, parts), strict=True):
                checksums |= copied
                advance(sum(place.size for place in part.values()))
    finally:
        threads.shutdown(cancel_futures=True)
    if len(parts) > 1:
        write_json(folder / INDEX, index_of(names, parts))
    return checksums


def _smaller_config(path: Path, model: Model, plan: LayerPlan) -> dict[str, Any]:
    """Return the config as it stands in its file, with fewer blocks.

    A file may leave out what each block is, as Gemma 2's does: transformers then works it out from a block's number,
    which a cut changes. So what it says of single blocks is what transformers has for the whole model. A file may call
    a field by an older name, too, which then goes.
    """
    config, whole = read_object(path, error=ModelError), model.network.config
    new = kept_fields(whole, model.architecture, plan.keep)
    older = {name for name, now in whole.attribute_map.items() if now in new}
    return {name: value for name, value in config.items() if name not in older} | new


def _copy_along(files: Sequence[Path], target: Path) -> None:
    """Copy the files that go with the weights, such as the tokenizer's."""
    for file in files:
        if any(file.match(pattern) for pattern in _ALONG) and not file.name.endswith((".bin", ".pt")):
            shutil.copyfile(file, target / file.name)


def _describe(
    model: Model,
    plan: LayerPlan,
    kept: Mapping[str, TensorPlace],
    checksums: Mapping[str, str],
    source: tuple[Source, Path],
    folder: Path,
    scores: Sequence[Score],
) -> None:
    """Write the record and the card of the cut checkpoint.

    Weights that are never in memory have the hash of their files in place of the network's.
    """
    network = model.network
    remember(network, source[1], base_of(*source))
    step = {"from": model.name, "weights": "", "depth": model.depth, **plan.spec()}
    setattr(network, ORIGIN, [*getattr(network, ORIGIN, []), step])
    parameters = sum(torch.Size(p.shape).numel() for name, p in kept.items() if not NO_WEIGHTS.search(name))
    hashes = digest(*(f"{name} {checksum}" for name, checksum in sorted(checksums.items())))
    describe_folder(model, folder, depth=len(plan.keep), parameters=parameters, files=hashes, scores=scores)


def _compare(source: str, folder: Path, plan: LayerPlan, places: Mapping[str, TensorPlace]) -> bool:
    """Compare what both checkpoints compute; return False where they are too large for that to be worth its time.

    Then transformers still says whether the files have every tensor that it wants for the config, and no other.
    """
    numbers = sum(torch.Size(place.shape).numel() for place in places.values())
    if numbers > LARGE or 8 * numbers > _ROOM * free_memory():
        inner = network_folder(folder)
        open_network(Source(str(folder)), inner, torch.float32, 0, "meta", is_embedding_folder(folder))
        log.log(
            NOTICE,
            "%s is too large to be opened here beside the whole; every tensor was compared by its hash, and its name "
            "by transformers.",
            source,
        )
        return False
    whole, smaller = load(source, device="cpu"), load(str(folder), device="cpu")
    check_against_replay(whole, smaller.network, plan)
    return True
