"""Opening a checkpoint so that what runs is what was saved: float32, safetensors, nothing made up."""

from __future__ import annotations

from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch

from layerscope.errors import InputError, ModelError, log
from layerscope.models import anatomy as anatomies
from layerscope.models.anatomy import Anatomy
from layerscope.models.asking import is_causal
from layerscope.models.belongings import belongings, give
from layerscope.models.checkpoints import network_without_weights, open_network, open_tokenizer, quiet
from layerscope.models.elmo_files import is_elmo
from layerscope.models.embedding import Embedding, is_embedding_folder, network_folder, read_embedding
from layerscope.models.heads import head_of
from layerscope.models.identity import described, model_spec
from layerscope.models.lineage import BASE, remember
from layerscope.models.origin import base_of
from layerscope.models.placing import device_of, float_type_of, is_spread
from layerscope.models.posting import postable
from layerscope.models.selfcheck import faults, find_anatomy, sees_padding
from layerscope.models.sources import Source, adapter_folder, fetch, gguf_of, parse
from layerscope.models.spread import input_device

__all__ = ["Model", "carry", "load", "quiet"]

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
        >>> model.name, model.head, model.depth == model.network.config.num_hidden_layers
        ('garden:bert-s0', 'masked', True)
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
    def widths(self) -> tuple[int, ...]:
        """Of layers 0..L, one by one."""
        return (self.width,) * (self.depth + 1)

    @property
    def positions(self) -> int | None:
        """The longest text in tokens that the embeddings allow, or None where there is no limit."""
        most = getattr(self.network.config, "max_position_embeddings", None)
        if not isinstance(most, int) or most <= 0:
            return None
        return most - anatomies.position_offset(self.network.base_model)

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
        """Where inputs go; the blocks of a network that is spread over several devices may lie elsewhere."""
        return input_device(self.network)

    @property
    def head(self) -> str:
        """What its head gives: classes, choices, tags, spans, masked, next, permuted, replaced, other, or none."""
        return head_of(self.network)

    @property
    def multiple_choice(self) -> bool:
        return self.head == "choices"

    @property
    def has_head(self) -> bool:
        return self.head != "none"

    @property
    def embedding(self) -> Embedding | None:
        """How its states become embeddings, where sentence-transformers says so beside its weights."""
        return belongings(self.network).embedding

    def require_tokenizer(self) -> Any:
        """The tokenizer, or the error that says that there is none."""
        if self.tokenizer is None:
            raise ModelError(
                f"{self.name} has no tokenizer beside its weights; save one into its folder, or pass tokenizer=."
            )
        return self.tokenizer

    def with_tokenizer(self, tokenizer: Any) -> Model:
        """The same model with another tokenizer."""
        return replace(self, tokenizer=tokenizer)

    def require_summary(self) -> str:
        """Which token stands for a whole text, `first` or `last`, or the error that says that none does."""
        return self.anatomy.summary

    def blocks(self) -> list[Any]:
        """The modules that run as blocks 1..L; those that are shared stand once for each run."""
        return anatomies.block_modules(self.network.base_model, self.anatomy)

    def require_blocks(self, doing: str, *, head: bool = True) -> None:
        """Nothing, or the error that says why what is done (`cutting`, say) cannot be: only states can be read.

        `head` says whether it needs the head too, not only blocks that can be run again.
        """

    def require_precision(self, doing: str) -> None:
        """Nothing, or the error that says that weights of 16 bits cannot be trained (`tuning`, say)."""
        if self.network.dtype.itemsize < torch.float32.itemsize:
            raise ModelError(
                f"The weights of {self.name} are open in {str(self.network.dtype).removeprefix('torch.')}, where "
                f"{doing} goes wrong: most steps are smaller than what 16 bits can tell apart. Open it in float32 "
                "(dtype=, --dtype); bf16=True (--bf16) has the products alone in bfloat16."
            )

    def spec(self) -> dict[str, Any]:
        """What decides its answers: weights, config, adapters, float type, tokenizer. For keys of the store."""
        return model_spec(self)

    def described(self) -> dict[str, Any]:
        """What it is, for the provenance of results."""
        return described(self)

    def __getstate__(self) -> dict[str, Any]:
        """What goes to another process with a job."""
        return {**vars(self), "network": postable(self.network)}

    def __repr__(self) -> str:
        return f"Model({self.name!r}, {type(self.network).__name__}, blocks 1..{self.depth}, width {self.width})"


def load(
    source: str | Path | Model | Any,
    *,
    dtype: torch.dtype | str = torch.float32,
    device: str | torch.device | None = None,
    seed: int = 0,
    tokenizer: Any = None,
    stateful: bool = False,
) -> Model:
    """Open a model so that what runs is what was saved.

    A checkpoint opens as the class that its config names (`architectures`), with its head, whatever that is. States
    come from the body alone: no vocabulary head is run for them.

    Args:
        source: A folder, a hub id, `id@revision`, `garden:<name>`, a GGUF file, `random:<any of these>` for the same
            architecture untrained, the folder of a training (`ls.tune(.., out=..)`), a folder with ELMo's files, a
            `Model`, or a loaded transformers model. A GGUF file opens as a causal language model whose weights are made
            float32; that is done once, and kept in the store. Any other network: `ls.wrap`.
        dtype: The float type of its weights. A loaded model is used as it is.
        device: Where it runs; the first GPU where there is one. `auto` spreads it over all GPUs, as is done without
            being asked where the weights are too large for the first; what fits on none waits on the host.
        seed: Decides the weights of `random:` models, together with the checkpoint that they are twins of: those of two
            checkpoints of one architecture differ, and a copy of a folder has the twin of the folder.
        tokenizer: A tokenizer, or where to open one, in place of the model's own.
        stateful: For ELMo: begin a batch with the states that the batch before ended in, as the published code does.
            Then a text's states depend on what ran before it, and nothing is kept in the store.

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
    if isinstance(tokenizer, (str, Path)):
        tokenizer = open_tokenizer(_tokenizer_folder(str(tokenizer)), str(tokenizer))
    if not isinstance(source, (str, Path)):
        _only_elmo(stateful, type(source).__name__)
        model = source if isinstance(source, Model) else _wrap_network(source, tokenizer)
        _check_as_it_is(model, dtype, device)
        return model if tokenizer is None else model.with_tokenizer(tokenizer)
    asked = parse(str(source))
    if (training := adapter_folder(asked)) is not None:
        opener = import_module("layerscope.tuning.opening")  # methods of tuning know their own files
        adapted: Model = opener.open_adapter(training, dtype=dtype, device=device, tokenizer=tokenizer)
        adapted.name = str(source)
        return adapted
    outer = fetch(asked)
    if is_elmo(outer):
        if tokenizer is not None:
            raise InputError(f"{source} is an ELMo, which reads words by their characters and takes no tokenizer.")
        opening = import_module("layerscope.models.elmo_opening")  # it makes a Model
        own: Model = opening.open_elmo(
            outer, str(source), asked.random, float_type_of(dtype), device_of(device), seed, stateful
        )
        return own
    _only_elmo(stateful, str(source))
    folder = network_folder(outer)
    spread = not asked.random and is_spread(device, folder, float_type_of(dtype))
    embedding = is_embedding_folder(outer)
    network = open_network(asked, folder, float_type_of(dtype), seed, spread, embedding)
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
            network.name_or_path = asked.name  # not its place in the store
        remember(network, outer, base)
        if embedding:
            give(network, replace(belongings(network), embedding=read_embedding(outer, asked.name)))
    return _examined(network, tokenizer, str(source))


def load_whole(source: Any, doing: str, *, head: bool = True) -> Model:
    """The same for what needs more than states: a network of its own (`ls.wrap`, ELMo) is refused by name.

    `doing` begins the reason: "cutting" needs a transformers network.
    """
    model = load(source)
    model.require_blocks(doing, head=head)
    return model


def load_shape(source: Source, outer: Path) -> Model:
    """A model of which only the shape is known: no weight is read. Families without a record are not self-checked."""
    if is_elmo(outer):
        load(source.name).require_blocks("cutting")
    network = network_without_weights(network_folder(outer), source.name, is_embedding_folder(outer))
    candidates = [anatomy] if (anatomy := anatomies.known(network.config)) else find_anatomy(network)
    if len(candidates) > 1:
        lists = ", ".join(candidate.blocks for candidate in candidates)
        raise ModelError(
            f"{source.name} is a {network.config.model_type}, a family that layerscope has no record of, and which of "
            f"its lists are its blocks ({lists}) is only found by running it; cut it in memory: ls.cut."
        )
    return Model(network, None, candidates[0], source.name)


def _only_elmo(stateful: bool, name: str) -> None:
    if stateful:
        raise InputError(f"stateful=True is for ELMo's folders; {name} carries no state from batch to batch.")


def _tokenizer_folder(source: str) -> Path:
    return network_folder(fetch(replace(parse(source), random=True)))


def _check_as_it_is(model: Model, dtype: torch.dtype | str, device: str | torch.device | None) -> None:
    """A loaded model is used as it is; asking for another float type or device is a mistake, not a wish."""
    if dtype != torch.float32 and float_type_of(dtype) != model.network.dtype:
        raise InputError(f"{model.name} is loaded in {model.network.dtype}; convert it yourself: network.to({dtype}).")
    if device not in (None, "auto") and device_of(device).type != model.device.type:
        raise InputError(f"{model.name} is loaded on {model.device}; move it yourself: network.to({str(device)!r}).")


def _wrap_network(network: Any, tokenizer: Any) -> Model:
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
            if sees_padding(model):
                model = replace(model, anatomy=replace(candidate, unpadded=True))
            fault = next(faults(model), None)
            if fault is None and is_causal(model):  # no later token reaches the first one
                model = replace(model, anatomy=replace(model.anatomy, summary="last"))
        except Exception as error:  # whatever an unknown forward may raise, it is not sound
            fault = f"it could not be run on a few tokens ({type(error).__name__}: {error})"
        if fault is None:
            return model
        problem = fault
    raise ModelError(
        f"{name} is a {network.config.model_type}, a family that layerscope has no record of, and it did not "
        f"pass the self-check: {problem}. Supported: {', '.join(anatomies.FAMILIES)}."
    )
