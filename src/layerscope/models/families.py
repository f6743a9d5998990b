"""Families of transformers as data: one small frozen record each, and what is refused by name.

A family is added here and nowhere else: a record in `FAMILIES`, or the reason why it cannot be supported.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal


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
class Architecture:
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


_BERT = Architecture(
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
_GPT2 = Architecture(
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
_LLAMA = Architecture(
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

_RECORDS = (
    _BERT,
    _ROBERTA,
    replace(_ROBERTA, family="xlm-roberta"),
    replace(_ROBERTA, family="camembert"),
    Architecture(
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
    Architecture(
        "distilbert",
        "transformer.layer",
        "n_layers",
        head=("pre_classifier", "classifier"),
        attention_out="attention.out_lin",
        feedforward_out="ffn.lin2",
        lora=("q_lin", "v_lin"),
        projections=Projections("attention.q_lin", "attention.k_lin", "attention.v_lin", "attention.out_lin"),
    ),
    Architecture(
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
    Architecture(
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
FAMILIES = {architecture.family: architecture for architecture in _RECORDS}

# A family, and why it is refused.
_BIAS = "every block uses the position bias that block 1 computes, so that no block can be run without it"
REFUSED = {
    **dict.fromkeys(("t5", "mt5", "longt5", "switch_transformers", "pop2piano"), _BIAS),
    "reformer": "its blocks are reversible and hand on two states each, so that no block's output is a layer",
    "funnel": "its blocks shorten a text as they go, so that its layers do not have the same rows",
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

# `Architecture.marks_summary` of families without a record: their classifiers mark the first token by themselves.
MARKS_SUMMARY = {"longformer": "global_attention_mask"}
# `Architecture.stale` of families without a record: causal masks that old checkpoints keep beside the weights.
_MASK = r"\.attn\.(masked_)?bias$"
STALE = {
    "gpt_neo": r"\.attn\.attention\.(masked_)?bias$",
    "gptj": _MASK,
    "codegen": r"\.attn\.(causal_mask|(masked_)?bias)$",
    "gpt_bigcode": _MASK,
}
