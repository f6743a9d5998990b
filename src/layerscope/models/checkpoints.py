"""Opens the files of a checkpoint: its network, with every weight accounted for, and its tokenizer."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from layerscope.errors import LayerscopeError, ModelError, check_seed, device_fault, first_line
from layerscope.models.architecture import known_architecture, stale_tensors
from layerscope.models.extras import Extras, attach_extras, float_type, left_over, numbers_in_files
from layerscope.models.heads import class_of
from layerscope.models.sources import Source, twin_seed
from layerscope.models.weight_files import Room, check_config, check_sizes
from layerscope.store import read_object

LARGE = 1_000_000_000  # parameters: models of more open in their own 16 bits
_TOKENIZER_SETTINGS = ("tokenizer_config.json", "special_tokens_map.json")
_TOKENIZER_FILES = ("tokenizer.json", "vocab.*", "*.model", "merges.txt")


def open_network(
    source: Source, folder: Path, dtype: torch.dtype, seed: int, place: str | None = None, embedding: bool = False
) -> Any:
    """Return the network that a folder holds, or for `random:` sources the one that its config describes.

    It is of the class that the config names, with its head. `place` is transformers' device map: `auto` puts its parts
    on all devices of the machine, and `meta` on none, so that only the names of weights are compared. `embedding` says
    that sentence-transformers, which uses no head, saved the folder.
    """
    import transformers

    with quiet():
        room = check_config(folder, source.name, source.random)
        config = open_config(folder, source.name)
        named = _class_in(room, config, embedding)
        opener = named or transformers.AutoModel
        with torch.random.fork_rng(devices=[]):
            # The seed decides the weights of random: models, and those of a bare encoder's unused pooler.
            torch.manual_seed(twin_seed(folder, seed) if source.random else check_seed(seed))
            try:
                check_sizes(config, room, lambda: _build(config, named), source.name)
                if source.random:
                    network = _build(config, named).to(dtype)
                    network.name_or_path = f"random:{source.name}"
                    return network
                network, info = opener.from_pretrained(
                    folder,
                    config=config,
                    dtype=dtype,
                    use_safetensors=True,
                    trust_remote_code=False,
                    local_files_only=True,
                    output_loading_info=True,
                    **({} if place is None else {"device_map": place}),
                )
            except LayerscopeError:
                raise
            except (SafetensorError, FileNotFoundError, UnicodeDecodeError, json.JSONDecodeError) as error:
                raise ModelError(
                    f"The weights of {source.name} cannot be read ({str(error).splitlines()[0]}): the file is damaged "
                    "or was not copied or downloaded to its end; fetch it again."
                ) from error
            except ValueError as error:
                raise ModelError(
                    f"{source.name} is a {config.model_type} that transformers cannot open as {opener.__name__}: "
                    f"{str(error).splitlines()[0].rstrip('.')}."
                ) from error
            except Exception as error:  # settings that cannot be served fail in as many ways as there are families
                if device_fault(error) is not None:
                    raise
                if "ignore_mismatched_sizes" in str(error):
                    raise ModelError(
                        f"The weights of {source.name} do not have the shapes that its config.json says; "
                        "the checkpoint is broken and is not opened."
                    ) from error
                raise ModelError(
                    f"{source.name} is a {config.model_type} that transformers cannot build with what its config.json "
                    f"says ({first_line(error)})."
                ) from error
    check_tensors(network, info, source.name)
    asked = getattr(config, "architectures", None) or ["none"]
    others = [k for k in info["unexpected_keys"] if not _is_stale(network, k)]
    # The tensors that no file has, as they were drawn. Offloaded ones are not at hand to be compared later.
    drawn = {name: tensor for name, tensor in network.state_dict().items() if name in info["missing_keys"]}
    if any(tensor.is_meta for tensor in drawn.values()):
        drawn = {}
    held = Extras(
        dtype=float_type(folder),
        tensors={k: v for k, v in left_over(folder, network, others).items() if not _in_body(network, k)},
        named=None if named is not None else str(asked[0]),
        made_up={name: tensor.cpu().clone() for name, tensor in drawn.items()},
    )
    attach_extras(network, held)
    return network


def auto_type(source: Source, folder: Path) -> torch.dtype:
    """Return the float type that a checkpoint opens in where none is asked for; no weight is read for that.

    It is the checkpoint's own where that has 16 bits and there are over a billion parameters, else float32. It depends
    on nothing else, so that the same checkpoint gives the same numbers on every machine.
    """
    try:
        own, parameters = float_type(folder), numbers_in_files(folder)
    except LayerscopeError:
        if not source.random:
            return torch.float32  # what is wrong with the files is said where they are opened
        own, parameters = _described_type(source, folder)
    return own if own is not None and own.itemsize == 2 and parameters > LARGE else torch.float32


def _described_type(source: Source, folder: Path) -> tuple[torch.dtype | None, int]:
    """Return the float type that a config names and how many parameters it describes, for a folder without weights."""
    try:
        with quiet(), torch.random.fork_rng(devices=[]), torch.device("meta"):
            check_config(folder, source.name, True)
            config = open_config(folder, source.name)
            return config.dtype, sum(parameter.numel() for parameter in _build(config, class_of(config)).parameters())
    except Exception:  # what is wrong with the config is said where the network is built
        return None, 0


def open_config(folder: Path, name: str) -> Any:
    """Return a checkpoint's config, or raise ModelError with the reason where its family cannot be used."""
    import transformers

    try:
        config = transformers.AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except Exception as error:  # fields of a wrong type fail in as many ways as there are families
        if "recogni" in str(error) or "custom code" in str(error):
            why = (
                f"names no architecture that transformers {transformers.__version__} has, and code from a "
                "checkpoint is never run"
            )
        else:
            why = f"is not one that transformers {transformers.__version__} can read ({first_line(error)})"
        raise ModelError(f"{name} cannot be opened: its config.json {why}.") from error
    config.return_dict = True  # outputs are read by name, which changes nothing else about them
    known_architecture(config)  # refuse by name before any weight is read
    check_reads_text(config, name)
    _refuse_quantised(config, name)
    return config


def check_reads_text(config: Any, name: str) -> None:
    """Raise ModelError for a network that has no vocabulary itself; where a part of it has one, name the way to it."""
    if getattr(config, "vocab_size", None) is not None:
        return
    from transformers import AutoModelForCausalLM

    what, part = f"{name} ({config.model_type}) is not a text model: it has no vocabulary", config.get_text_config()
    if part is config or getattr(part, "vocab_size", None) is None:
        raise ModelError(f"{what}.")
    kind = AutoModelForCausalLM._model_mapping.get(type(part), None)
    if kind is None:
        raise ModelError(
            f"{what} of its own. Its language part ({part.model_type}) has one, but transformers has no class that "
            "opens that part alone as a language model."
        )
    raise ModelError(
        f"{what} of its own. Its language part is a {kind.__name__}; save that once with transformers, and give its "
        f"folder: whole = AutoModelForImageTextToText.from_pretrained({name!r}); "
        "part = AutoModelForCausalLM.from_config(whole.config.get_text_config(), dtype=whole.dtype); "
        "part.base_model.load_state_dict(whole.get_decoder().state_dict()); "
        "part.set_output_embeddings(whole.get_output_embeddings()); part.save_pretrained('language-part'); "
        f"AutoTokenizer.from_pretrained({name!r}).save_pretrained('language-part')."
    )


def _build(config: Any, named: Any) -> Any:
    """Return the network that a config describes, untrained, of the named class where transformers has that."""
    import transformers

    return named._from_config(config) if named else transformers.AutoModel.from_config(config, trust_remote_code=False)


def _class_in(room: Room | None, config: Any, embedding: bool) -> Any:
    """Return the class that a config names, or that of its body for an embedding model whose files hold no head.

    Embedding models often keep the name of what they were trained from: all-mpnet-base-v2 says MPNetForMaskedLM.
    """
    named = class_of(config)
    if named is None or room is None or not embedding:
        return named
    with torch.random.fork_rng(devices=[]), torch.device("meta"):
        network = _build(config, named)
    inside = f"{network.base_model_prefix}."
    head = {key for key in network.state_dict() if not key.startswith(inside)}
    return named if network.base_model is network or head & room.names else type(network.base_model)


def network_without_weights(folder: Path, name: str, embedding: bool = False) -> Any:
    """Return the network that a folder's config describes on the meta device, where it takes no memory."""
    with quiet(), torch.device("meta"):
        room = check_config(folder, name, False)
        config = open_config(folder, name)
        network = _build(config, _class_in(room, config, embedding))
    network.name_or_path = name
    return network.eval()


def _refuse_quantised(config: Any, name: str) -> None:
    """Raise ModelError for quantised weights, which are codes and not numbers that can be compared, cut and saved."""
    settings = getattr(config, "quantization_config", None)
    if settings is None:
        return
    method = settings.get("quant_method") if isinstance(settings, dict) else getattr(settings, "quant_method", None)
    raise ModelError(
        f"{name} is quantised ({getattr(method, 'value', method) or 'by an unknown method'}), and layerscope opens "
        "weights that are numbers; give the checkpoint that it was made from, or turn it into one where its library "
        "is installed: network = AutoModel...from_pretrained(..), network.dequantize(), network.save_pretrained(..). "
        "Cut first, and quantise what is left."
    )


def check_tensors(network: Any, info: dict[str, Any], name: str, where: str = "config.json") -> None:
    """Raise ModelError for a checkpoint whose weights are not those of its config, except for a head not opened."""
    with_head = network.base_model is not network
    missing = [k for k in info["missing_keys"] if with_head or k.split(".")[0] not in _unused(network)]
    unexpected = [k for k in info["unexpected_keys"] if _in_body(network, k) and not _is_stale(network, k)]
    problems = [
        f"{len(keys)} tensors {what} (such as {min(keys)})"
        for keys, what in (
            (missing, "are missing"),
            (unexpected, "are not in the model that the config describes"),
        )
        if keys
    ]
    if problems:
        raise ModelError(
            f"The weights of {name} do not match its {where}: {' and '.join(problems)}. "
            "The checkpoint is broken and is not opened, since missing weights would be random numbers."
        )


def _unused(network: Any) -> tuple[str, ...]:
    """Return the names of a body's modules that only some head uses."""
    architecture = known_architecture(network.config)
    return architecture.base_head if architecture else ("pooler",)


def _is_stale(network: Any, key: str) -> bool:
    """Return whether a checkpoint's tensor is not a weight, but something that old versions kept beside them."""
    pattern = stale_tensors(network.config)
    return pattern is not None and re.search(pattern, key) is not None


def _in_body(network: Any, key: str) -> bool:
    """Return whether a checkpoint's tensor belongs to embeddings or blocks rather than to some head."""
    base, prefix, unused = network.base_model, f"{network.base_model_prefix}.", _unused(network)
    inside = key.removeprefix(prefix)
    child = inside.split(".")[0]
    if key.startswith(prefix):
        return child not in unused
    return base is network and child not in unused and child in dict(base.named_children())


def open_tokenizer(folder: Path, name: str) -> Any:
    """Return the folder's tokenizer, or None if it has none (transformers would make up an empty one)."""
    from transformers import AutoTokenizer

    way_out = f"fetch the checkpoint {name} again"
    # Read once more than transformers does, which takes half characters that no file can be written with again.
    settings = {
        path.name: read_object(path, error=ModelError, way_out=way_out)
        for path in map(folder.joinpath, _TOKENIZER_SETTINGS)
        if path.is_file()
    }
    found = any(any(folder.glob(pattern)) for pattern in _TOKENIZER_FILES)
    if not found and not _needs_no_files(settings.get(_TOKENIZER_SETTINGS[0], {})):
        return None
    with quiet():
        try:
            return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        except Exception as error:  # tokenizer files fail in as many ways as there are formats
            raise ModelError(
                f"The tokenizer of {name} cannot be opened: {first_line(error)}; its files are "
                "damaged or not for this transformers; save it again with save_pretrained."
            ) from error


def _needs_no_files(settings: Mapping[str, Any]) -> bool:
    """Return whether a tokenizer has no vocabulary to keep in a file: ByT5's, say, reads bytes."""
    import transformers

    kind = getattr(transformers, str(settings.get("tokenizer_class")), None)
    return isinstance(kind, type) and getattr(kind, "vocab_files_names", None) == {}


@contextmanager
def quiet() -> Iterator[None]:
    """Silence transformers' reports and bars while the block runs; what they report is checked here instead."""
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if bars:
            logging.enable_progress_bar()
