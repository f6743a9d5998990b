"""`ls.cut_folder`: a checkpoint cut on disk, tensor by tensor, without building the network."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from layerscope.cutting.cutting import can_be_built, check_against_replay, refuse
from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.saving import describe_folder
from layerscope.errors import InputError, ModelError, log
from layerscope.models import Model, load
from layerscope.models.embedding import is_embedding_folder, network_folder, read_embedding
from layerscope.models.headers import INDEX, weight_files
from layerscope.models.lineage import ORIGIN, RECORD, remember
from layerscope.models.load import load_shape
from layerscope.models.origin import base_of
from layerscope.models.sources import Source, fetch, parse
from layerscope.progress import progress
from layerscope.store import atomic_folder, check_free, digest, read_object, write_json
from layerscope.store.shards import TensorPlace, index_of, shard_names, shards, tensor_places, write_shard

MOST = 2_000_000_000  # bytes of a file of weights
_ROOM = 0.5  # of the memory that is free, for reopening and comparing
# What goes with the weights, beside the config: how texts become tokens, and how to generate.
_ALONG = (
    *("tokenizer*", "vocab*", "merges.txt", "special_tokens_map.json", "added_tokens.json", "*.model", "spiece.*"),
    *("chat_template*", "generation_config.json", "bpe.codes", "*.tiktoken"),
)


def cut_folder(folder: str | Path, plan: LayerPlan, path: str | Path) -> Path:
    """Cut a checkpoint on disk: tensors are copied file by file, and the network is never built.

    Kept blocks get their new numbers, lists with an entry per block are cut in the config, weights that were tied stay
    tied. Every tensor that was written is read again and compared by its hash; where both models fit in memory, they
    are opened and compared by what they compute, too.

    Args:
        folder: A checkpoint: a folder, a hub id, `id@revision`, `garden:<name>`.
        plan: Which blocks stay.
        path: The folder to write. An existing one is replaced only if layerscope saved it.

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
    """A checkpoint on disk, ready to be cut there; raises a sentence where that cannot be done.

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

    def kept(self, plan: LayerPlan) -> dict[str, TensorPlace]:
        """The tensors that a plan keeps, under their new names; raises the reason why there is no such checkpoint."""
        if not isinstance(plan, LayerPlan):
            raise InputError(f"A LayerPlan was asked for and {plan!r} was given; write ls.LayerPlan([1, 2, 5]), say.")
        check_plan(self.model, plan)
        return renumbered(self.places, self.model, plan)

    def write(self, plan: LayerPlan, target: Path) -> bool:
        """Write the smaller checkpoint; whether it was also opened and compared by what it computes."""
        kept = self.kept(plan)
        check_free(target, RECORD)
        _check_room(kept, target)
        with atomic_folder(target, RECORD) as staging:
            checksums = _write_weights(kept, staging)
            write_json(staging / "config.json", _smaller_config(self.inner / "config.json", self.model, plan))
            _copy_along(self.inner, staging)
            if is_embedding_folder(self.outer):
                read_embedding(self.outer, self.asked.name).write(staging)
            _describe(self.model, plan, kept, checksums, (self.asked, self.outer), staging)
            return _compare(self.name, staging, plan, self.places)


def check_plan(model: Model, plan: LayerPlan) -> None:
    """Raise the reason why a plan cannot become a checkpoint of a model of which only the shape is known."""
    plan.check(model.depth)
    refuse(model, plan)
    if not can_be_built(model, plan):
        raise ModelError(
            f"{model.name} ({model.anatomy.family}) cannot be built with {plan} as a checkpoint: its tensors or what "
            "its blocks are told would differ; keep other blocks."
        )


def read_places(folder: Path, name: str) -> dict[str, TensorPlace]:
    """Every tensor of a checkpoint's files by its name."""
    files = [tensor_places(file, ModelError) for file in weight_files(folder, name)]
    return {tensor: place for places in files for tensor, place in places.items()}


def renumbered(places: Mapping[str, TensorPlace], model: Model, plan: LayerPlan) -> dict[str, TensorPlace]:
    """The tensors that stay, under their new names. Checkpoints name blocks with the body's prefix or without it."""
    if model.anatomy.shared:
        return dict(places)
    prefix = f"(?:{re.escape(model.network.base_model_prefix)}\\.)?"
    lists = "|".join(map(re.escape, (model.anatomy.blocks, *model.anatomy.beside)))
    pattern = re.compile(f"({prefix}(?:{lists})\\.)(\\d+)(\\..+)")
    matches = {name: pattern.fullmatch(name) for name in places}
    numbers = {int(match[2]) for match in matches.values() if match}
    if numbers != set(range(model.depth)):
        raise ModelError(
            f"{model.name} ({model.anatomy.family}) is said to have {model.depth} blocks, and its files name "
            f"{len(numbers)} under {model.anatomy.blocks}: they cannot be renumbered on disk. Cut it in memory: ls.cut."
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
    needed, free = sum(place.size for place in kept.values()), shutil.disk_usage(target.parent).free
    if needed > free:
        raise InputError(
            f"{target} would take {needed / 1e9:.1f} GB and {target.parent} has {free / 1e9:.1f} GB left; free some "
            "space or give another path."
        )


def _write_weights(kept: Mapping[str, TensorPlace], folder: Path) -> dict[str, str]:
    """The files of weights, streamed; each is read again and every tensor compared with what it was copied from."""
    parts, checksums = shards(kept, MOST), dict[str, str]()
    names = shard_names(len(parts))
    total = sum(place.size for place in kept.values())
    with progress(f"writing {folder.parent.name}", total, "bytes") as advance:
        for name, part in zip(names, parts, strict=True):
            copied = write_shard(folder / name, part)
            again = {tensor: place.checksum() for tensor, place in tensor_places(folder / name, ModelError).items()}
            if again != copied:
                raise ModelError(f"{name} is not what was written to it: the disk is failing; nothing was saved.")
            checksums |= copied
            advance(sum(place.size for place in part.values()))
    if len(parts) > 1:
        write_json(folder / INDEX, index_of(names, parts))
    return checksums


def _smaller_config(path: Path, model: Model, plan: LayerPlan) -> dict[str, Any]:
    """The config as it stands in its file, with fewer blocks.

    A file may leave out what each block is, as Gemma 2's does: transformers then works it out from a block's number,
    which a cut changes. So the lists are those that transformers has for the whole model.
    """
    config = read_object(path, error=ModelError)
    for field in model.anatomy.layer_lists:
        values = getattr(model.network.config, field, None)
        if values is not None:
            config[field] = [values[block - 1] for block in plan.keep]
    for field in {model.anatomy.depth_field, "num_hidden_layers"} & config.keys() or {model.anatomy.depth_field}:
        config[field] = len(plan.keep)
    return config


def _copy_along(source: Path, target: Path) -> None:
    for pattern in _ALONG:
        for file in sorted(source.glob(pattern)):
            if file.is_file() and not (target / file.name).exists() and not file.name.endswith((".bin", ".pt")):
                shutil.copyfile(file, target / file.name)


def _describe(
    model: Model,
    plan: LayerPlan,
    kept: Mapping[str, TensorPlace],
    checksums: Mapping[str, str],
    source: tuple[Source, Path],
    folder: Path,
) -> None:
    """Record and card. Weights that are never in memory have the hash of their files in place of the network's."""
    network = model.network
    remember(network, source[1], base_of(*source))
    step = {"from": model.name, "weights": "", "depth": model.depth, **plan.spec()}
    setattr(network, ORIGIN, [*getattr(network, ORIGIN, []), step])
    parameters = sum(torch.Size(place.shape).numel() for place in kept.values())
    hashes = digest(*(f"{name} {checksum}" for name, checksum in sorted(checksums.items())))
    describe_folder(model, folder, depth=len(plan.keep), parameters=parameters, files=hashes)


def _compare(source: str, folder: Path, plan: LayerPlan, places: Mapping[str, TensorPlace]) -> bool:
    """Open both and compare what they compute; False where they do not fit in memory."""
    numbers = sum(torch.Size(place.shape).numel() for place in places.values())
    if 8 * numbers > _ROOM * free_memory():
        log.warning(
            "%s is too large to be opened here beside the whole; every tensor was compared by its hash instead.",
            source,
        )
        return False
    whole, smaller = load(source, device="cpu"), load(str(folder), device="cpu")
    check_against_replay(whole, smaller.network, plan)
    return True


def free_memory() -> int:
    """Bytes that can be allocated without swapping."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
    except (OSError, StopIteration, ValueError):  # not Linux
        return int(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2)
