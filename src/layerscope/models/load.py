"""Opening a checkpoint so that what runs is what was saved: float32, safetensors, nothing made up."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from layerscope.errors import InputError, LayerscopeError, ModelError, check_seed, first_line, log
from layerscope.models import anatomy as anatomies
from layerscope.models.anatomy import Anatomy
from layerscope.models.asking import is_causal
from layerscope.models.headers import check_config, check_sizes
from layerscope.models.identity import described, model_spec
from layerscope.models.lineage import remember
from layerscope.models.selfcheck import faults, find_anatomy
from layerscope.models.sources import Source, adapter_folder, fetch, parse
from layerscope.store import read_object

_HEADS = {
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "ForMultipleChoice": "AutoModelForMultipleChoice",
}
_TOKENIZER_FILES = ("tokenizer.json", "vocab.*", "*.model", "merges.txt")
_CARRIED = "_layerscope_tokenizer"  # networks that layerscope returns carry their tokenizer


@dataclass(eq=False)
class Model:
    """A transformers network with its tokenizer, its anatomy and its name; `ls.load` makes one.

    Attributes:
        network: The transformers model, in evaluation mode.
        tokenizer: Its tokenizer, or None.
        anatomy: Where its family keeps blocks, norms and heads.
        name: What it is called in results.

    Example:
        >>> import layerscope as ls
        >>> model = ls.load("garden:bert-s0")
        >>> model.name, model.has_head, model.depth == model.network.config.num_hidden_layers
        ('garden:bert-s0', False, True)
    """

    network: Any
    tokenizer: Any
    anatomy: Anatomy
    name: str

    @property
    def depth(self) -> int:
        """L, the number of blocks that run."""
        return int(getattr(self.network.config, self.anatomy.depth_field))

    @property
    def width(self) -> int:
        return int(self.network.config.hidden_size)

    @property
    def positions(self) -> int | None:
        """The longest text in tokens that the embeddings allow, or None where there is no limit."""
        most = getattr(self.network.config, "max_position_embeddings", None)
        if not isinstance(most, int) or most <= 0:
            return None
        return most - anatomies.position_offset(self.network.base_model)

    @property
    def vocabulary(self) -> int:
        """How many tokens have an embedding."""
        return int(self.network.get_input_embeddings().weight.shape[0])

    @property
    def token_types(self) -> int | None:
        """How many token types (first text, second text) it tells apart, or None where there is no limit."""
        types = getattr(self.network.config, "type_vocab_size", None)
        return types if isinstance(types, int) else None

    @property
    def pad_token(self) -> int | None:
        """The id that the network takes for padding, or None where it has none; a negative one is none."""
        pad = getattr(self.network.config, "pad_token_id", None)
        return pad if isinstance(pad, int) and pad >= 0 else None

    @property
    def device(self) -> torch.device:
        return next(self.network.parameters()).device

    @property
    def multiple_choice(self) -> bool:
        return type(self.network).__name__.endswith("ForMultipleChoice")

    @property
    def has_head(self) -> bool:
        return any(type(self.network).__name__.endswith(suffix) for suffix in _HEADS)

    def require_tokenizer(self) -> Any:
        """The tokenizer, or the error that says that there is none."""
        if self.tokenizer is None:
            raise ModelError(
                f"{self.name} has no tokenizer beside its weights; save one into its folder, or pass tokenizer=."
            )
        return self.tokenizer

    def spec(self) -> dict[str, Any]:
        """What decides its answers: weights, config, adapters, float type, tokenizer. For keys of the store."""
        return model_spec(self)

    def described(self) -> dict[str, Any]:
        """What it is, for the provenance of results."""
        return described(self)

    def __repr__(self) -> str:
        return f"Model({self.name!r}, {type(self.network).__name__}, blocks 1..{self.depth}, width {self.width})"


def load(
    source: str | Path | Model | Any,
    *,
    dtype: torch.dtype | str = torch.float32,
    device: str | torch.device | None = None,
    seed: int = 0,
    tokenizer: Any = None,
) -> Model:
    """Open a model so that what runs is what was saved.

    A classifier checkpoint opens with its head, any other as a bare encoder.

    Args:
        source: A folder, a hub id, `id@revision`, `garden:<name>`, `random:<id or folder>` for the same architecture
            untrained, the folder of a training (`ls.tune(.., out=..)`), a `Model`, or a loaded transformers model.
        dtype: The float type of its weights. A loaded model is used as it is.
        device: Where it runs; the first GPU where there is one.
        seed: Decides the weights of `random:` models.
        tokenizer: A tokenizer, or where to open one, in place of the model's own.

    Returns:
        The `Model`.

    Example:
        >>> import layerscope as ls
        >>> model, untrained = ls.load("garden:bert-s0"), ls.load("random:garden:bert-s0")
        >>> model.depth == untrained.depth, model.spec() == untrained.spec()
        (True, False)
    """
    if isinstance(tokenizer, (str, Path)):
        tokenizer = _open_tokenizer(fetch(replace(parse(str(tokenizer)), random=True)), str(tokenizer))
    if not isinstance(source, (str, Path)):
        model = source if isinstance(source, Model) else _wrap_network(source, tokenizer)
        _check_as_it_is(model, dtype, device)
        return model if tokenizer is None else replace(model, tokenizer=tokenizer)
    asked = parse(str(source))
    if (training := adapter_folder(asked)) is not None:
        opener = import_module("layerscope.tuning.opening")  # methods of tuning know their own files
        adapted: Model = opener.open_adapter(training, dtype=dtype, device=device, tokenizer=tokenizer)
        adapted.name = str(source)
        return adapted
    folder = fetch(asked)
    network = _open(asked, folder, _dtype(dtype), seed)
    if tokenizer is None:
        tokenizer = _open_tokenizer(folder, asked.name)
    network.eval().to(_device(device))
    if not asked.random:
        remember(network, folder)
    return _examined(network, tokenizer, str(source))


def _check_as_it_is(model: Model, dtype: torch.dtype | str, device: str | torch.device | None) -> None:
    """A loaded model is used as it is; asking for another float type or device is a mistake, not a wish."""
    if dtype != torch.float32 and _dtype(dtype) != model.network.dtype:
        raise InputError(f"{model.name} is loaded in {model.network.dtype}; convert it yourself: network.to({dtype}).")
    if device is not None and _device(device).type != model.device.type:
        raise InputError(f"{model.name} is loaded on {model.device}; move it yourself: network.to({str(device)!r}).")


def _device(device: str | torch.device | None) -> torch.device:
    if device is None:
        return default_device()
    try:
        usable_device = torch.device(device)
        torch.empty(0, device=usable_device)
    except (RuntimeError, AssertionError) as error:
        usable = "cpu" + (", cuda" if torch.cuda.is_available() else "")
        raise InputError(f"The device {str(device)!r} cannot be used here; usable: {usable}.") from error
    return usable_device


def default_device() -> torch.device:
    """The first GPU, or the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    return torch.device("mps" if torch.backends.mps.is_available() else "cpu")


def _wrap_network(network: Any, tokenizer: Any) -> Model:
    from transformers import PreTrainedModel

    if not isinstance(network, PreTrainedModel):
        kind = type(network).__name__
        way_out = " Merge its adapters first: model.merge_and_unload()." if kind.startswith("Peft") else ""
        raise InputError(
            f"A model was asked for and a {kind} was given; allowed are a folder, a hub id, id@revision, "
            f"random:<id or folder>, a layerscope Model or a transformers model.{way_out}"
        )
    tokenizer = tokenizer or getattr(network, _CARRIED, None)
    name = network.name_or_path or type(network).__name__
    if tokenizer is None and network.name_or_path:
        try:
            tokenizer = _open_tokenizer(fetch(replace(parse(network.name_or_path), random=True)), name)
        except ModelError as error:
            log.info("No tokenizer was found for %s: %s", name, error)
    return _examined(network, tokenizer, name)


def carry(network: Any, tokenizer: Any) -> None:
    """Let a network that layerscope returns lead to its tokenizer."""
    setattr(network, _CARRIED, tokenizer)


def _examined(network: Any, tokenizer: Any, name: str) -> Model:
    """The Model, its anatomy known or found and checked."""
    carry(network, tokenizer)
    if getattr(network.config, "vocab_size", None) is None:
        raise ModelError(f"{name} ({network.config.model_type}) is not a text model: it has no vocabulary.")
    if getattr(network.config, "return_dict", True) is False:
        raise ModelError(
            f"{name} returns plain tuples (return_dict is false in its config), and layerscope reads outputs by name; "
            "set network.config.return_dict = True."
        )
    known = anatomies.known(network.config)
    if known is not None:
        return Model(network, tokenizer, known, name)
    problem = "its blocks were not found"
    for candidate in find_anatomy(network):
        model = Model(network, tokenizer, candidate, name)
        try:
            fault = next(faults(model), None)
            if fault is None and is_causal(model):  # no later token reaches the first one
                model = replace(model, anatomy=replace(candidate, summary="last"))
        except Exception as error:  # whatever an unknown forward may raise, it is not sound
            fault = f"it could not be run on a few tokens ({type(error).__name__}: {error})"
        if fault is None:
            return model
        problem = fault
    raise ModelError(
        f"{name} is a {network.config.model_type}, a family that layerscope has no record of, and it did not "
        f"pass the self-check: {problem}. Supported: {', '.join(anatomies.FAMILIES)}."
    )


def _open(source: Source, folder: Path, dtype: torch.dtype, seed: int) -> Any:
    import transformers

    with quiet():
        room = check_config(folder, source.name, source.random)
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
            raise ModelError(f"{source.name} cannot be opened: its config.json {why}.") from error
        config.return_dict = True  # outputs are read by name; what they are does not change
        anatomies.known(config)  # refuse by name before any weight is read
        opener = getattr(transformers, _opener(config))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(check_seed(seed))  # decides random: models, and a bare encoder's unused pooler
            try:
                check_sizes(config, room, lambda: opener.from_config(config, trust_remote_code=False), source.name)
                if source.random:
                    network = opener.from_config(config, trust_remote_code=False).to(dtype)
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
                if "ignore_mismatched_sizes" in str(error):
                    raise ModelError(
                        f"The weights of {source.name} do not have the shapes that its config.json says; "
                        "the checkpoint is broken and is not opened."
                    ) from error
                raise ModelError(
                    f"{source.name} is a {config.model_type} that transformers cannot build with what its config.json "
                    f"says ({first_line(error)})."
                ) from error
    _check_tensors(network, info, source.name)
    return network


def _check_json(path: Path, name: str) -> None:
    """Raise a sentence unless the file is a JSON object: transformers' own error would blame the architecture."""
    read_object(path, error=ModelError, way_out=f"fetch the checkpoint {name} again")


def _opener(config: Any) -> str:
    """The Auto class for a checkpoint: with its head if it is a classifier, else the bare encoder."""
    for architecture in getattr(config, "architectures", None) or ():
        for suffix, auto in _HEADS.items():
            if architecture.endswith(suffix):
                return auto
    return "AutoModel"


def _check_tensors(network: Any, info: dict[str, Any], name: str) -> None:
    """Refuse a checkpoint whose weights are not its config's; only a head that is not opened may differ."""
    known = anatomies.known(network.config)
    unused = known.base_head if known else ("pooler",)
    pattern = anatomies.stale(network.config)
    stale = re.compile(pattern) if pattern else None
    with_head = network.base_model is not network
    missing = [k for k in info["missing_keys"] if with_head or k.split(".")[0] not in unused]
    unexpected = [
        k for k in info["unexpected_keys"] if _in_body(network, k, unused) and not (stale and stale.search(k))
    ]
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
            f"The weights of {name} do not match its config.json: {' and '.join(problems)}. "
            "The checkpoint is broken and is not opened, since missing weights would be random numbers."
        )


def _in_body(network: Any, key: str, unused: tuple[str, ...]) -> bool:
    """Whether a checkpoint's tensor belongs to embeddings or blocks rather than to some head."""
    base, prefix = network.base_model, f"{network.base_model_prefix}."
    inside = key.removeprefix(prefix)
    child = inside.split(".")[0]
    if key.startswith(prefix):
        return child not in unused
    return base is network and child not in unused and child in dict(base.named_children())


def _open_tokenizer(folder: Path, name: str) -> Any:
    """The folder's tokenizer, or None if it has none (transformers would make up an empty one)."""
    from transformers import AutoTokenizer

    if not any(any(folder.glob(pattern)) for pattern in _TOKENIZER_FILES) and not _needs_no_files(folder, name):
        return None
    with quiet():
        try:
            return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        except Exception as error:  # tokenizer files fail in as many ways as there are formats
            raise ModelError(
                f"The tokenizer of {name} cannot be opened: {first_line(error)}; its files are "
                "damaged or not for this transformers; save it again with save_pretrained."
            ) from error


def _needs_no_files(folder: Path, name: str) -> bool:
    """Whether the folder's tokenizer has no vocabulary to keep in a file: ByT5's, say, reads bytes."""
    import transformers

    path = folder / "tokenizer_config.json"
    if not path.is_file():
        return False
    _check_json(path, name)
    kind = getattr(transformers, str(json.loads(path.read_text(encoding="utf-8")).get("tokenizer_class")), None)
    return isinstance(kind, type) and getattr(kind, "vocab_files_names", None) == {}


def _dtype(dtype: torch.dtype | str) -> torch.dtype:
    float_type = getattr(torch, dtype, None) if isinstance(dtype, str) else dtype
    if not isinstance(float_type, torch.dtype) or not float_type.is_floating_point:
        raise InputError(f"There is no float type {dtype!r}; allowed: float32, bfloat16, float16, float64.")
    return float_type


@contextmanager
def quiet() -> Iterator[None]:
    """Without transformers' reports and bars: what they tell is checked here and said in a sentence."""
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
