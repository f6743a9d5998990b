"""Facts about architectures, as data: one small frozen record per family."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import nn

from layerscope.errors import ModelError
from layerscope.models import rewiring


@dataclass(frozen=True)
class Projections:
    """Where a block keeps its attention matrices (paths from the block), and how they lie there."""

    query: str
    key: str
    value: str
    output: str
    fused: Literal["no", "thirds", "heads"] = "no"  # query, key, value in one: one after another, or head by head
    layout: Literal["linear", "transposed", "by head"] = "linear"  # (out, in), (in, out) or (width, heads, size)


@dataclass(frozen=True)
class Anatomy:
    """Where one family of transformers keeps what layerscope needs. Paths start at the base model."""

    family: str  # config.model_type
    blocks: str  # the ModuleList of blocks
    depth_field: str = "num_hidden_layers"  # the config field that says how many blocks run
    layer_lists: tuple[str, ...] = ()  # config fields with one entry per block
    base_head: tuple[str, ...] = ()  # modules of the base model that only the head uses
    head: tuple[str, ...] = ("classifier",)  # modules of the classifier beside the base model
    final_norm: str | None = None  # a norm between the last block and the head
    summary: Literal["first", "last"] = "first"  # the token that stands for the whole text
    shared: bool = False  # one block, run L times
    time_first: bool = False  # blocks work on (time, batch, width)
    keeps_first: str = ""  # why block 1 cannot be removed from a checkpoint, if it cannot
    refused_fields: tuple[tuple[str, str], ...] = ()  # config fields that break replay when set, and why
    stale: str | None = None  # tensors of old checkpoints that are not weights (a regular expression)
    attention_out: str | None = None  # in a block, the module after which an attention adapter sits
    feedforward_out: str | None = None  # the same for the feed-forward part
    lora: tuple[str, ...] = ()  # in a block, the projections that LoRA adapts
    prefix: bool = False  # whether peft's prefix tuning works on it
    unpadded: bool = False  # padding changes its states, so only texts of one length go through it together
    marks_summary: str | None = None  # the input in which the family's heads mark the summary token
    beside: tuple[str, ...] = ()  # lists beside `blocks` that hold further parts of every block
    rewired: bool = False  # its blocks are called as modules only since layerscope sees to it
    projections: Projections | None = None  # the attention matrices of a block
    generic: bool = False  # found by the generic finder, accepted by the self-check


def _fused(
    path: str, output: str, fused: Literal["thirds", "heads"], layout: Literal["linear", "transposed"] = "linear"
) -> Projections:
    """Query, key and value in one matrix."""
    return Projections(path, path, path, output, fused, layout)


_BERT = Anatomy(
    "bert",
    "encoder.layer",
    base_head=("pooler",),
    attention_out="attention.output.dense",
    feedforward_out="output.dense",
    lora=("query", "value"),
    prefix=True,
    projections=Projections(
        "attention.self.query", "attention.self.key", "attention.self.value", "attention.output.dense"
    ),
)
_ROBERTA = replace(_BERT, family="roberta")
_DEBERTA = replace(
    _BERT,
    family="deberta",
    base_head=(),
    head=("pooler", "classifier"),
    lora=("in_proj",),
    prefix=False,
    projections=_fused("attention.self.in_proj", "attention.output.dense", "heads"),
)
_GPT2 = Anatomy(
    "gpt2",
    "h",
    "n_layer",
    head=("score",),
    final_norm="ln_f",
    summary="last",
    stale=r"\.attn\.(masked_)?bias$",
    attention_out="attn.c_proj",
    feedforward_out="mlp.c_proj",
    lora=("c_attn",),
    prefix=True,
    projections=_fused("attn.c_attn", "attn.c_proj", "thirds", "transposed"),
)
_LLAMA = Anatomy(
    "llama",
    "layers",
    head=("score",),
    final_norm="norm",
    summary="last",
    attention_out="self_attn.o_proj",
    feedforward_out="mlp.down_proj",
    lora=("q_proj", "v_proj"),
    prefix=True,
    projections=Projections("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj"),
)

_FAMILIES = (
    _BERT,
    _ROBERTA,
    replace(_ROBERTA, family="xlm-roberta"),
    replace(_ROBERTA, family="camembert"),
    Anatomy(
        "albert",
        "encoder.albert_layer_groups",
        base_head=("pooler", "pooler_activation"),
        shared=True,
        attention_out="albert_layers.0.attention.dense",
        feedforward_out="albert_layers.0.ffn_output",
        lora=("query", "value"),
        projections=Projections(
            "albert_layers.0.attention.query",
            "albert_layers.0.attention.key",
            "albert_layers.0.attention.value",
            "albert_layers.0.attention.dense",
        ),
    ),
    replace(_BERT, family="electra", base_head=()),
    _DEBERTA,
    replace(
        _DEBERTA,
        family="deberta-v2",
        lora=("query_proj", "value_proj"),
        projections=Projections(
            "attention.self.query_proj",
            "attention.self.key_proj",
            "attention.self.value_proj",
            "attention.output.dense",
        ),
        refused_fields=(
            (
                "conv_kernel_size",
                "a convolution follows block 1, so that no block's output is the next one's input",
            ),
        ),
    ),
    Anatomy(
        "distilbert",
        "transformer.layer",
        "n_layers",
        head=("pre_classifier", "classifier"),
        attention_out="attention.out_lin",
        feedforward_out="ffn.lin2",
        lora=("q_lin", "v_lin"),
        projections=Projections("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin"),
    ),
    Anatomy(
        "xlnet",
        "layer",
        "n_layer",
        head=("sequence_summary", "logits_proj"),
        summary="last",
        time_first=True,
        attention_out="rel_attn.layer_norm",  # its output projection is not a module: the adapter reads the sum before
        feedforward_out="ff.layer_2",
        lora=("layer_1", "layer_2"),  # its attention projections are not modules
        projections=Projections("rel_attn.q", "rel_attn.k", "rel_attn.v", "rel_attn.o", layout="by head"),
    ),
    _GPT2,
    replace(_GPT2, family="openai-gpt", final_norm=None, prefix=False),
    Anatomy(
        "modernbert",
        "layers",
        layer_lists=("layer_types",),
        head=("head", "classifier"),
        final_norm="final_norm",
        attention_out="attn.Wo",
        feedforward_out="mlp.Wo",
        lora=("Wqkv",),
        projections=_fused("attn.Wqkv", "attn.Wo", "thirds"),
        keeps_first="the first block of a ModernBERT checkpoint has no attention norm, "
        "so another block in its place would lose its own when reopened",
    ),
    _LLAMA,
    replace(_LLAMA, family="qwen3", layer_lists=("layer_types",)),
)
FAMILIES = {anatomy.family: anatomy for anatomy in _FAMILIES}

PREFIXES = "layerscope_prefixes"  # the module of a base model that has trained keys and values before every text
_BIAS = "every block uses the position bias that block 1 computes, so that no block can be run without it"
REFUSED = {
    **dict.fromkeys(("t5", "mt5", "longt5", "switch_transformers", "pop2piano"), _BIAS),
    "reformer": "its blocks are reversible and hand on two states each, so that no block's output is a layer",
    "funnel": "its blocks shorten a text as they go, so that its layers do not have the same rows",
}
# The same as `Anatomy.marks_summary`, of families without a record: classifiers mark the first token by themselves.
MARKS_SUMMARY = {"longformer": "global_attention_mask"}
# The same as `Anatomy.stale`, of families without a record: causal masks that old checkpoints keep beside the weights.
_MASK = r"\.attn\.(masked_)?bias$"
_STALE = {
    "gpt_neo": r"\.attn\.attention\.(masked_)?bias$",
    "gptj": _MASK,
    "codegen": r"\.attn\.(causal_mask|(masked_)?bias)$",
    "gpt_bigcode": _MASK,
}

# A family, a config field, the value that breaks what layerscope promises, why, and the way out.
REFUSED_SETTINGS = (
    (
        "big_bird",
        "attention_type",
        "block_sparse",
        "which tokens a token sees depends on the length that a text is padded to, and one short batch turns full "
        "attention on for good",
        'open it with transformers and attention_type="original_full", which is the same for texts of up to '
        "(5 + 2 num_random_blocks) block_size tokens, and give that network",
    ),
    (
        "xlnet",
        "attn_type",
        "uni",
        "transformers fails on several texts at once with it",
        'published checkpoints have attn_type="bi"',
    ),
)


def families() -> tuple[Anatomy, ...]:
    """List the families whose anatomy is known; others are looked into when they are loaded.

    Returns:
        One `Anatomy` per family: where it keeps blocks, norms and heads.

    Example:
        >>> import layerscope as ls
        >>> next(a for a in ls.families() if a.family == "bert").blocks
        'encoder.layer'
    """
    return _FAMILIES


def known(config: Any) -> Anatomy | None:
    """The record for a config's family; None if the family is not known, an error if it is refused."""
    family = config.model_type
    if family in REFUSED:
        raise ModelError(
            f"{family} is not supported: {REFUSED[family]}. To compare its layers anyway, run it with "
            "transformers (output_hidden_states=True), pool its states, and give them to "
            "ls.Representations.from_arrays; for a model to cut, take an encoder such as BERT's."
        )
    if getattr(config, "is_encoder_decoder", False):
        raise ModelError(
            f"{family} is not supported: it is an encoder-decoder, and layerscope reads single stacks of blocks."
        )
    anatomy = FAMILIES.get(family)
    for field, reason in anatomy.refused_fields if anatomy else ():
        if getattr(config, field, None):
            raise ModelError(
                f"{family} with {field}={getattr(config, field)!r} is not supported: {reason}. {family} without it is."
            )
    for name, field, value, reason, way_out in REFUSED_SETTINGS:
        if family == name and getattr(config, field, None) == value:
            raise ModelError(f"{family} with {field}={value!r} is not supported: {reason}; {way_out}.")
    return anatomy


def stale(config: Any) -> str | None:
    """The tensors of a family's old checkpoints that are not weights, as a regular expression."""
    anatomy = FAMILIES.get(config.model_type)
    return anatomy.stale if anatomy else _STALE.get(config.model_type)


def block_modules(base: nn.Module, anatomy: Anatomy) -> list[nn.Module]:
    """The module that runs as block 1, 2, .. L; shared blocks appear once for each run."""
    if anatomy.rewired:
        return list(rewiring.blocks_of(base))
    modules = list(base.get_submodule(anatomy.blocks))  # type: ignore[call-overload]
    if not anatomy.shared:
        return modules
    depth = getattr(base.config, anatomy.depth_field)
    return [modules[int(i / (depth / len(modules)))] for i in range(depth)]


def accepted_inputs(network: nn.Module) -> set[str]:
    """The inputs that a network takes by name, as its family's forward says."""
    return set(inspect.signature(type(network).forward).parameters)


def position_offset(base: nn.Module) -> int:
    """Positions that no token of a text gets: those of trained prefixes, and those up to a padding index.

    Embeddings with a padding index start counting after it, as RoBERTa's do.
    """
    prefixes = getattr(base, PREFIXES, None)
    return _padding_offset(base) + (0 if prefixes is None else int(prefixes.virtual_tokens))


def _padding_offset(base: nn.Module) -> int:
    for name, module in base.named_modules():
        index, table = getattr(module, "padding_idx", None), getattr(module, "weight", None)
        if "position" in name and index is not None and table is not None:
            return 0 if index + 1 >= len(table) else int(index) + 1  # a negative index is counted from the end
    return 0


def head_modules(network: Any, anatomy: Anatomy) -> list[str]:
    """Paths of the modules with parameters that turn a layer's states into the network's output."""
    base, prefix = network.base_model, network.base_model_prefix
    inside = "" if base is network else f"{prefix}."
    paths = [inside + name for name in anatomy.base_head if _has_parameters(getattr(base, name, None))]
    if base is not network:
        paths += [name for name, child in network.named_children() if name != prefix and _has_parameters(child)]
    return paths


def _has_parameters(module: nn.Module | None) -> bool:
    return module is not None and next(module.parameters(), None) is not None


@contextmanager
def only_blocks(network: Any, anatomy: Anatomy, keep: Sequence[int]) -> Iterator[None]:
    """The network itself with all but these blocks (1..L) really taken out, until the block ends."""
    base = network.base_model
    depth = getattr(base.config, anatomy.depth_field)
    paths = (path.rpartition(".") for path in (anatomy.blocks, *anatomy.beside))
    holders = [(base.get_submodule(parent), name) for parent, _, name in paths]
    modules = [getattr(parent, name) for parent, name in holders]
    wired = rewiring.blocks_of(base) if anatomy.rewired else ()
    lists = {field: getattr(base.config, field) for field in anatomy.layer_lists}
    try:
        setattr(base.config, anatomy.depth_field, len(keep))
        for field, values in lists.items():
            setattr(base.config, field, [values[b - 1] for b in keep])
        if anatomy.rewired:
            rewiring.set_blocks(base, tuple(wired[b - 1] for b in keep))
        if not anatomy.shared:
            for (parent, name), whole in zip(holders, modules, strict=True):
                setattr(parent, name, nn.ModuleList(whole[b - 1] for b in keep))
        yield
    finally:
        setattr(base.config, anatomy.depth_field, depth)
        for field, values in lists.items():
            setattr(base.config, field, values)
        for (parent, name), whole in zip(holders, modules, strict=True):
            setattr(parent, name, whole)
        if anatomy.rewired:
            rewiring.set_blocks(base, wired)


@contextmanager
def as_it_was(network: Any) -> Iterator[None]:
    """Settings, submodules and buffers that a forward changes are put back when the block ends."""
    before = [
        (module, {k: v for k, v in vars(module).items() if not k.startswith("_")}, dict(module._modules))
        for module in network.modules()
    ]
    buffers = [(module, dict(module._buffers)) for module in network.modules()]
    try:
        yield
    finally:
        for module, settings, children in before:
            vars(module).update(settings)
            module._modules = children
        for module, own in buffers:
            module._buffers = own


@contextmanager
def evaluating(network: Any) -> Iterator[None]:
    """Evaluation mode (no dropout), and back to what it was."""
    was_training = network.training
    network.eval()
    try:
        yield
    finally:
        network.train(was_training)
