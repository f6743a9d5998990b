"""`ls.load` opens a checkpoint so that what runs is what was saved: from safetensors, and nothing made up.

A loaded network also carries the model that it began as: its name, its revision on the hub, and the licence that its
card states. When a model goes to another process, it goes without the hooks that transformers leaves on networks.
"""

from __future__ import annotations

import copy
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from types import FunctionType
from typing import Any

import torch

from layerscope.errors import NOTICE, InputError, ModelError, device_fault, log
from layerscope.models.architecture import block_modules, known_architecture, position_offset
from layerscope.models.checkpoints import (
    auto_type,
    check_reads_text,
    network_without_weights,
    open_network,
    open_tokenizer,
    quiet,
)
from layerscope.models.devices import (
    AUTO,
    check_room,
    device_faults_told,
    device_of,
    float_type_of,
    input_device,
    is_offloaded,
    is_spread,
)
from layerscope.models.elmo_files import is_elmo
from layerscope.models.extras import attach_extras, extras, made_up
from layerscope.models.families import FAMILIES, Architecture
from layerscope.models.fingerprint import described, model_spec
from layerscope.models.heads import HEADS, head_of
from layerscope.models.lineage import BASE, Base, remember
from layerscope.models.peft_adapter import base_name, open_merged, peft_folder
from layerscope.models.selfcheck import faults, find_architectures, is_causal, sees_padding
from layerscope.models.sentence_embedding import Embedding, is_embedding_folder, network_folder, read_embedding
from layerscope.models.sources import (
    DEMO,
    DEMO_LM,
    GARDEN,
    Source,
    adapter_folder,
    fetch,
    gguf_of,
    parse,
    short_names,
)
from layerscope.models.weight_files import weight_files
from layerscope.models.weights import give_tensors, is_in_file, other_tensors, without_weights
from layerscope.store import is_whole, open_tensors

CARD = "README.md"
_LONGEST_CARD = 1 << 20  # bytes
_IN_CACHE = re.compile(r"models--([^/\\]+)[/\\]snapshots[/\\]([0-9a-f]{40})")  # as the hub's cache keeps a revision
_HEAD = re.compile(r"\s*---[ \t]*\n(.*?)\n---[ \t]*(?:\n|\Z)", re.DOTALL)  # of a card: its data
_LICENCE = ("license", "license_name", "license_link")  # as cards spell it


def base_of(source: Source, folder: Path) -> Base:
    """Return the base of a network that was opened from a folder: the model that it began as."""
    if source.random:
        return Base(name=f"random:{short(source.name)}")
    match = _IN_CACHE.search(str(folder.absolute()))
    name = match[1].replace("--", "/", 1) if match else ""
    if match and (name == source.name or os.path.isdir(source.name)):
        return Base(name=name, hub=True, revision=match[2], **licence(folder))
    hub = not _is_packaged(source.name) and not os.path.exists(source.name)
    return Base(name=short(source.name), hub=hub, revision=source.revision, **licence(folder))


def licence(folder: Path) -> dict[str, Any]:
    """Return the licence that the card in a folder states; nothing where there is no card, or it states none."""
    stated = stated_by_card(folder)
    found = {name: stated[name] for name in _LICENCE if _is_text(stated.get(name))}
    several = stated.get("license")
    if isinstance(several, list) and several and all(map(_is_text, several)):
        found["license"] = several
    return found


def stated_by_card(folder: Path) -> dict[str, Any]:
    """Return what the head of the card in a folder states; nothing where there is no card, or it cannot be read."""
    path = folder / CARD
    try:
        if not path.is_file() or path.stat().st_size > _LONGEST_CARD:  # a pipe would be waited for
            return {}
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return {}
    import yaml

    head = _HEAD.match(text)
    try:
        stated = yaml.safe_load(head[1]) if head else {}
    except Exception:  # a card is written by hand, and a broken one, such as of the date 2020-13-45, states nothing
        return {}
    return stated if isinstance(stated, dict) else {}


def _is_text(value: Any) -> bool:
    """Return whether a value of a card is a text that can be written again."""
    return isinstance(value, str) and is_whole(value)


def short(name: str) -> str:
    """Return a name that can be published: of a folder or a file its last part, without its place on this machine."""
    return Path(name).resolve().name if not _is_packaged(name) and os.path.exists(name) else name


def _is_packaged(name: str) -> bool:
    """Return whether a model is in a Python package that goes with this one."""
    return name.startswith(GARDEN) or name in (DEMO, DEMO_LM)


_CAPTURING = "transformers.utils.output_capturing"
_INSTALLED = "_output_capturing_hooks_installed"


def picklable_copy(network: Any) -> Any:
    """Return a copy that shares every weight, without the hooks by which transformers captures outputs.

    They are functions inside functions, which cannot be pickled, and transformers installs them again when needed.
    """
    copied = copy.deepcopy(network, {id(tensor): tensor for tensor in (*network.parameters(), *network.buffers())})
    for module in copied.modules():
        vars(module).pop(_INSTALLED, None)
        for key, hook in list(module._forward_hooks.items()):
            if isinstance(hook, FunctionType) and hook.__module__ == _CAPTURING and "<locals>" in hook.__qualname__:
                del module._forward_hooks[key]
    return copied


def sharing_copy(network: Any) -> Any:
    """Return a copy whose parameters are its own and lie in the memory of the network's.

    What is trained of it needs memory of its own first: `separate`.
    """
    memo: dict[int, Any] = {id(buffer): buffer for buffer in network.buffers()}
    memo |= {id(p): torch.nn.Parameter(p.detach(), p.requires_grad) for p in network.parameters()}
    return copy.deepcopy(network, memo)


def separate(network: torch.nn.Module, other: torch.nn.Module) -> None:
    """Give trained parameters of a network that lie in another one's memory memory of their own."""
    taken = {parameter.data_ptr() for parameter in other.parameters()}
    for parameter in network.parameters():
        if parameter.requires_grad and parameter.data_ptr() in taken:
            parameter.data = parameter.data.clone()


__all__ = ["Model", "ModelSource", "carry", "load", "quiet"]

_CARRIED = "_layerscope_tokenizer"  # networks that layerscope returns carry their tokenizer


ModelSource = Any  # what `ls.load` takes: a folder, a hub id, a Model, a loaded transformers model


@dataclass(eq=False)
class Model:
    """A transformers network with its tokenizer, its architecture and its name; `ls.load` makes one.

    Attributes:
        network: The transformers model, in evaluation mode.
        tokenizer: Its tokenizer, or None.
        architecture: Where its family keeps blocks, norms and heads.
        name: Where it comes from: the folder, the hub id, or what else opened it.
        shown_as: What it is called in tables and figures, where a name was given for that.

    Example:
        >>> import layerscope as ls
        >>> model = ls.load("garden:bert-s0")
        >>> model.name, model.head, model.depth == model.network.config.num_hidden_layers
        ('garden:bert-s0', 'masked', True)
    """

    network: Any
    tokenizer: Any
    architecture: Architecture
    name: str
    shown_as: str = field(default="", kw_only=True)

    @property
    def label(self) -> str:
        """What it is called in tables and figures: the name given for that, else a short one, never a path."""
        return self.shown_as or short_names([self.name])[0]

    @property
    def depth(self) -> int:
        """L, the number of blocks that run."""
        return int(getattr(self.network.config, self.architecture.depth_field))

    @property
    def width(self) -> int:
        return int(self.network.config.hidden_size)

    @property
    def widths(self) -> tuple[int, ...]:
        """The widths of layers 0..L."""
        return (self.width,) * (self.depth + 1)

    @property
    def positions(self) -> int | None:
        """The longest text in tokens that the embeddings allow, or None where there is no limit."""
        most = getattr(self.network.config, "max_position_embeddings", None)
        if not isinstance(most, int) or most <= 0:
            return None
        return most - position_offset(self.network.base_model)

    @property
    def long_above(self) -> int | None:
        """The length in tokens above which a text changes how its whole batch is read, or None where none does.

        LongRoPE (Phi-3's long contexts) has frequencies for short texts and for long ones, and transformers takes those
        of a batch's longest text for all of it.
        """
        rope = getattr(self.network.config, "rope_parameters", None) or {}
        kinds = [rope, *(part for part in rope.values() if isinstance(part, dict))]  # one for all blocks, or by kind
        limits = [part["original_max_position_embeddings"] for part in kinds if part.get("rope_type") == "longrope"]
        return min(limits, default=None)

    @property
    def vocabulary(self) -> int:
        """The number of tokens that have an embedding."""
        return int(self.network.get_input_embeddings().weight.shape[0])

    @property
    def token_types(self) -> int | None:
        """The number of token types (first text, second text) that it tells apart, or None where there is no limit."""
        types = getattr(self.network.config, "type_vocab_size", None)
        return types if isinstance(types, int) else None

    @property
    def pad_token(self) -> int | None:
        """The id that the network takes for padding, or None. Negative ids do not count."""
        pad = getattr(self.network.config, "pad_token_id", None)
        return pad if isinstance(pad, int) and pad >= 0 else None

    @property
    def device(self) -> torch.device:
        """The device for inputs; the blocks of a network that is spread over several devices may lie elsewhere."""
        return input_device(self.network)

    @property
    def head(self) -> str:
        """What its head gives: classes, choices, tags, spans, masked, next, permuted, replaced, other, or none."""
        return head_of(self.network)

    @property
    def multiple_choice(self) -> bool:
        return HEADS[self.head].outputs == "choices"

    @property
    def has_head(self) -> bool:
        return self.head != "none"

    @property
    def embedding(self) -> Embedding | None:
        """The rule by which its states become embeddings, where sentence-transformers saved one beside its weights."""
        return extras(self.network).embedding

    def require_tokenizer(self) -> Any:
        """Return the tokenizer, or raise ModelError where there is none."""
        if self.tokenizer is None:
            raise ModelError(
                f"{self.name} has no tokenizer beside its weights; save one into its folder, or pass tokenizer=."
            )
        return self.tokenizer

    def with_tokenizer(self, tokenizer: Any) -> Model:
        """Return the same model with another tokenizer."""
        return replace(self, tokenizer=tokenizer)

    def require_summary(self) -> str:
        """Return which token stands for a whole text, `first` or `last`, or raise InputError where none does."""
        return self.architecture.summary

    def blocks(self) -> list[Any]:
        """Return the modules that run as blocks 1..L; a shared one is listed once for each run."""
        return block_modules(self.network.base_model, self.architecture)

    def require_blocks(self, doing: str, *, head: bool = True) -> None:
        """Raise ModelError if only this model's states can be read, so that `doing` (`cutting`, say) is impossible.

        `head` says whether it needs the head too, not only blocks that can be run again.
        """

    def require_precision(self, doing: str) -> None:
        """Raise ModelError if the weights have 16 bits, in which `doing` (`tuning`, say) goes wrong."""
        if self.network.dtype.itemsize < torch.float32.itemsize:
            raise ModelError(
                f"The weights of {self.name} are open in {str(self.network.dtype).removeprefix('torch.')}, where "
                f"{doing} goes wrong: most steps are smaller than what 16 bits can tell apart. Open it in float32 "
                "(dtype=, --dtype); bf16=True (--bf16) has the products alone in bfloat16."
            )

    def spec(self) -> dict[str, Any]:
        """Return what determines its answers, for keys of the store: weights, config, adapters, dtype, tokenizer."""
        return model_spec(self)

    def described(self) -> dict[str, Any]:
        """Return a description of it for the provenance of results."""
        return described(self)

    def __getstate__(self) -> dict[str, Any]:
        """Return what goes to another process with a job."""
        return {**vars(self), "network": picklable_copy(self.network)}

    def __repr__(self) -> str:
        return f"Model({self.name!r}, {type(self.network).__name__}, blocks 1..{self.depth}, width {self.width})"


def load(
    source: str | Path | Model | Any,
    *,
    dtype: torch.dtype | str = AUTO,
    device: str | torch.device | None = None,
    seed: int = 0,
    tokenizer: Any = None,
    stateful: bool = False,
    name: str | None = None,
) -> Model:
    """Open a model so that what runs is what was saved.

    A checkpoint opens as the class that its config names (`architectures`), with its head, whatever that is. States
    come from the body alone: no vocabulary head is run for them.

    Args:
        source: A folder, a hub id, `id@revision`, `garden:<name>`, a GGUF file, `random:<any of these>` for the same
            architecture untrained, the folder of a training (`ls.tune(.., out=..)`), the folder of a LoRA adapter of
            peft, which is merged into the base that it names, a folder with ELMo's files, a
            `Model`, or a loaded transformers model. A GGUF file opens as a causal language model whose weights are made
            float32; that is done once, and kept in the store. Any other network: `ls.wrap`.
        dtype: The float type to open weights in: `float32`, `bfloat16`, `float16`, or `auto`: the checkpoint's own type
            where that has 16 bits and the model over a billion parameters, else float32. A loaded model is used as it
            is.
        device: Where it runs: `cpu`, `cuda`, `cuda:1`; the first GPU where there is one. `auto` spreads it over all
            GPUs where there are several. Weights that are too large for the first GPU, be it the only one, are spread
            without being asked; what fits on none waits on the host.
        seed: Decides the weights of `random:` models, together with the checkpoint that they are twins of: those of two
            checkpoints of one architecture differ, and a copy of a folder has the twin of the folder.
        tokenizer: A tokenizer, or where to open one, in place of the model's own.
        stateful: For ELMo: begin a batch with the states that the batch before ended in, as the published code does.
            Then a text's states depend on what ran before it, and nothing is kept in the store.
        name: What it is called in tables and figures; if not given, the shortest name that tells it apart.

    Returns:
        The `Model`.

    Example:
        >>> import layerscope as ls
        >>> model, untrained = ls.load("garden:bert-s0"), ls.load("random:garden:bert-s0")
        >>> model.depth == untrained.depth, model.spec() == untrained.spec()
        (True, False)
        >>> others = ls.load("random:garden:bert-s0", seed=1), ls.load("random:garden:bert-s1")
        >>> [untrained.spec() == other.spec() for other in others]
        [False, False]
    """
    way_out = "open it in 16 bits (dtype=, --dtype), on another device (device=, --device), or free memory first"
    what = source if isinstance(source, (str, Path)) else type(source).__name__
    if not (tokenizer is None or isinstance(tokenizer, (str, Path)) or callable(tokenizer)):
        raise InputError(
            f"tokenizer is of the type {type(tokenizer).__name__}; it must be a tokenizer of transformers, or a folder "
            "or hub id to open one from."
        )
    with device_faults_told(f"Opening {what}", way_out):
        model = _open(source, dtype, device, seed, tokenizer, stateful)
    return model if name is None else replace(model, shown_as=str(name))


def labels_of(models: Sequence[Model]) -> list[str]:
    """Return what models are called in tables and figures; short names that are equal are made longer."""
    short = short_names([model.name for model in models])
    return [model.shown_as or name for model, name in zip(models, short, strict=True)]


def _open(
    source: Any, dtype: torch.dtype | str, device: str | torch.device | None, seed: int, tokenizer: Any, stateful: bool
) -> Model:
    """Open a model, as `load` does."""
    if isinstance(tokenizer, (str, Path)):
        tokenizer = open_tokenizer(_tokenizer_folder(str(tokenizer)), str(tokenizer))
    if not isinstance(source, (str, Path)):
        _only_elmo(stateful, type(source).__name__)
        model = source if isinstance(source, Model) else _wrap_network(source, tokenizer)
        _check_as_it_is(model, dtype, device)
        return model if tokenizer is None else model.with_tokenizer(tokenizer)
    asked = parse(str(source))
    if (adapted := _open_adapted(asked, dtype, device, seed, tokenizer)) is not None:
        adapted.name = str(source)
        return adapted
    outer = fetch(asked)
    if is_elmo(outer):
        if tokenizer is not None:
            raise InputError(f"{source} is an ELMo, which reads words by their characters and takes no tokenizer.")
        opening = import_module("layerscope.models.elmo_opening")  # imported here, as it imports this module
        elmo: Model = opening.open_elmo(
            outer,
            str(source),
            asked.random,
            torch.float32 if dtype == AUTO else float_type_of(dtype),
            device_of(device),
            seed,
            stateful,
        )
        return elmo
    _only_elmo(stateful, str(source))
    folder = network_folder(outer)
    opened_type = _chosen_type(dtype, asked, folder)
    spread = not asked.random and is_spread(device, folder, opened_type)
    if not asked.random:
        check_room(str(source), folder, opened_type, spread)
    embedding = is_embedding_folder(outer)
    network = open_network(asked, folder, opened_type, seed, "auto" if spread else None, embedding)
    if tokenizer is None:
        tokenizer = open_tokenizer(folder, asked.name)
    network.eval()
    if not spread:
        network.to(device_of(device))
    base = base_of(asked, outer)
    if asked.random:
        setattr(network, BASE, base)
    else:
        if gguf_of(asked) is not None:
            network.name_or_path = asked.name  # the file, and not the converted folder in the store
        remember(network, outer, base)
    model = _checked_model(network, tokenizer, str(source))
    if embedding and not asked.random:
        held = replace(extras(network), embedding=read_embedding(outer, asked.name, model.width))
        attach_extras(network, held)
    return model


def _open_adapted(
    asked: Source, dtype: torch.dtype | str, device: str | torch.device | None, seed: int, tokenizer: Any
) -> Model | None:
    """Open an adapter on its base, as `tune` or peft saves it; None where a source names none.

    One of peft is merged into its base, and its untrained twin is that of its base.
    """
    if (training := adapter_folder(asked)) is not None:
        opener = import_module("layerscope.tuning.reopen")  # methods of tuning know their own files
        tuned: Model = opener.open_adapter(training, dtype=dtype, device=device, tokenizer=tokenizer)
        return tuned
    if (folder := peft_folder(asked)) is None:
        return None
    if asked.random:
        return load(f"random:{base_name(folder)}", dtype=dtype, device=device, seed=seed, tokenizer=tokenizer)
    network, of_base = open_merged(folder, lambda name: load(name, dtype=dtype, device=device, seed=seed))
    if tokenizer is None:
        tokenizer = open_tokenizer(folder, asked.name) or of_base
    return _checked_model(network, tokenizer, asked.name)


def _chosen_type(dtype: torch.dtype | str, source: Source, folder: Path) -> torch.dtype:
    """Return the float type to open a checkpoint in, and say so where it is not float32 and nobody asked for it."""
    if dtype != AUTO:
        return float_type_of(dtype)
    chosen = auto_type(source, folder)
    if chosen != torch.float32:
        log.log(
            NOTICE,
            "%s opens in %s, its own float type, since it has over a billion parameters; float32 (dtype=, --dtype) "
            "takes twice the memory.",
            *(source.name, str(chosen).removeprefix("torch.")),
        )
    return chosen


def load_whole(source: Any, doing: str, *, head: bool = True, dtype: str = AUTO) -> Model:
    """Load a model for something that needs more than states; wrapped networks (`ls.wrap`, ELMo) raise ModelError.

    `doing` begins the reason: "cutting" needs a transformers network. `dtype` is for what is not loaded yet.
    """
    model = load(source, dtype=dtype if isinstance(source, (str, Path)) else AUTO)
    model.require_blocks(doing, head=head)
    return model


def load_trainable(source: Any, doing: str) -> Model:
    """Load a model whose weights themselves are trained, in float32; one that is open in 16 bits raises ModelError."""
    model = load_whole(source, doing, dtype="float32")
    model.require_precision(doing)
    return model


def reopen(model: Model, folder: Path) -> Model:
    """Open the folder that a model was saved in, as `load` does, without a second copy of its weights.

    Each tensor is read from its file and compared; one that is equal is the model's own, and one that is not is the
    file's. Where the files have other names for tensors than the network, which transformers converts, or the network
    is spread over devices, the folder is opened as any other.
    """
    network, name = model.network, str(folder)
    outer, inner = folder, network_folder(folder)
    spread = len(set((getattr(network, "hf_device_map", None) or {}).values())) > 1
    embedding = is_embedding_folder(outer)
    meta = None
    if not spread and not is_offloaded(network):
        # What transformers makes of the names in the files, with which of them are missing and which are one.
        meta = open_network(Source(name), inner, network.dtype, 0, "meta", embedding)
    files = {
        tensor: file for path in weight_files(inner, name) for file in [open_tensors(path)] for tensor in file.names
    }
    mine = network.state_dict(keep_vars=True)
    found = None if meta is None or type(meta) is not type(network) else _in_files(meta, mine, files, made_up(network))
    if meta is None or found is None:
        return load(name, dtype=network.dtype, device="auto" if spread else str(model.device))
    again = without_weights(type(network), meta.config, network.dtype)
    if other := other_tensors(again, mine):
        raise ModelError(f"The checkpoint of {model.name} reopens with other tensors, such as {other[0]}.")
    tensors = {
        key: tensor if at is None or is_in_file(tensor, files[at], at) else files[at].tensor(at).to(tensor)
        for (key, tensor), at in ((item, found[item[0]]) for item in mine.items())
    }
    give_tensors(again, tensors, share=True)
    again.to(model.device)
    again.name_or_path = name
    attach_extras(again, replace(extras(meta), made_up=extras(network).made_up))
    remember(again, outer, base_of(Source(name), outer))
    opened = _checked_model(again, open_tokenizer(inner, name), name)
    if embedding:
        attach_extras(again, replace(extras(again), embedding=read_embedding(outer, name, opened.width)))
    return opened


def _in_files(
    meta: Any, mine: Mapping[str, Any], files: Mapping[str, Any], drawn: set[str]
) -> dict[str, str | None] | None:
    """Return under which name the files have each tensor of a network: its own, or that of one that it is tied to.

    None stands for a tensor of `drawn`, which no file has. The whole is None where some tensor is under neither name.
    """
    tied: dict[int, list[str]] = {}
    for name, parameter in meta.named_parameters(remove_duplicate=False):
        tied.setdefault(id(parameter), []).append(name)
    groups = {name: names for names in tied.values() for name in names}
    found: dict[str, str | None] = {}
    for name in mine:
        at = next((other for other in (name, *groups.get(name, ())) if other in files), None)
        if at is None and name not in drawn:
            return None
        found[name] = at
    return found


def load_shape(source: Source, outer: Path) -> Model:
    """Return a model on the meta device: no weight is read, and families without a record are not self-checked."""
    if is_elmo(outer):
        load(source.name).require_blocks("cutting")
    network = network_without_weights(network_folder(outer), source.name, is_embedding_folder(outer))
    candidates = [architecture] if (architecture := known_architecture(network.config)) else find_architectures(network)
    if len(candidates) > 1:
        lists = ", ".join(candidate.blocks for candidate in candidates)
        raise ModelError(
            f"{source.name} is a {network.config.model_type}, a family that layerscope has no record of, and which of "
            f"its lists are its blocks ({lists}) is only found by running it; cut it in memory: ls.cut."
        )
    return Model(network, None, candidates[0], source.name)


def _only_elmo(stateful: bool, name: str) -> None:
    """Raise InputError if `stateful` was asked of a model that is not ELMo."""
    if stateful:
        raise InputError(f"stateful=True is for ELMo's folders; {name} carries no state from batch to batch.")


def _tokenizer_folder(source: str) -> Path:
    """Return the folder with the files of a source's tokenizer; its weights need not be there."""
    return network_folder(fetch(replace(parse(source), random=True)))


def _check_as_it_is(model: Model, dtype: torch.dtype | str, device: str | torch.device | None) -> None:
    """Raise InputError if another float type or device was asked of a loaded model, which is used as it is."""
    if dtype != AUTO and float_type_of(dtype) != model.network.dtype:
        raise InputError(f"{model.name} is loaded in {model.network.dtype}; convert it yourself: network.to({dtype}).")
    if device not in (None, "auto") and device_of(device).type != model.device.type:
        raise InputError(f"{model.name} is loaded on {model.device}; move it yourself: network.to({str(device)!r}).")


def _wrap_network(network: Any, tokenizer: Any) -> Model:
    """Return the Model of a loaded transformers network, with the tokenizer that it carries or came with."""
    from transformers import PreTrainedModel

    if not isinstance(network, PreTrainedModel):
        kind = type(network).__name__
        way_out = " Merge its adapters first: model.merge_and_unload()." if kind.startswith("Peft") else ""
        raise InputError(
            f"A model was asked for and a {kind} was given; allowed are a folder, a hub id, id@revision, "
            f"random:<id or folder>, a layerscope Model or a transformers model; ls.wrap makes a Model of any other "
            f"network.{way_out}"
        )
    tokenizer = tokenizer or getattr(network, _CARRIED, None)
    name = network.name_or_path or type(network).__name__
    if tokenizer is None and network.name_or_path:
        try:
            tokenizer = open_tokenizer(_tokenizer_folder(network.name_or_path), name)
        except ModelError as error:
            log.info("No tokenizer was found for %s: %s", name, error)
    return _checked_model(network, tokenizer, name)


def carry(network: Any, tokenizer: Any) -> None:
    """Attach a tokenizer to a network that layerscope returns, so that `ls.load` of the network finds it."""
    setattr(network, _CARRIED, tokenizer)


def _checked_model(network: Any, tokenizer: Any, name: str) -> Model:
    """Return the Model of a network, whose architecture is on record, or else found and self-checked."""
    carry(network, tokenizer)
    check_reads_text(network.config, name)
    if getattr(network.config, "return_dict", True) is False:
        raise ModelError(
            f"{name} returns plain tuples (return_dict is false in its config), and layerscope reads outputs by name; "
            "set network.config.return_dict = True."
        )
    if (architecture := known_architecture(network.config)) is not None:
        return Model(network, tokenizer, architecture, name)
    problem = "its blocks were not found"
    for candidate in find_architectures(network):
        model = Model(network, tokenizer, candidate, name)
        try:
            if sees_padding(model):
                model = replace(model, architecture=replace(candidate, unpadded=True))
            fault = next(faults(model), None)
            if fault is None and is_causal(model):  # no later token reaches the first one
                model = replace(model, architecture=replace(model.architecture, summary="last"))
        except Exception as error:  # whatever an unknown forward may raise, it is not sound
            if device_fault(error) is not None:
                raise
            fault = f"it could not be run on a few tokens ({type(error).__name__}: {error})"
        if fault is None:
            return model
        problem = fault
    raise ModelError(
        f"{name} is a {network.config.model_type}, a family that layerscope has no record of, and it did not "
        f"pass the self-check: {problem}. Supported: {', '.join(FAMILIES)}."
    )
