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
class Writer:
    """The last matrix of a block's feed-forward part (a path from the block), and what stands behind it.

    What it gives is added to the residual unchanged where no norm is named, so that another matrix in its place changes
    the block's output linearly. Whether it has a bias is read from the network.
    """

    matrix: str
    attention: str = ""  # the last matrix of the attention, whose output is added to the state that the block got
    layout: Literal["linear", "transposed"] = "linear"  # of both matrices: (out, in) or (in, out)
    norm: str = ""  # a norm between it and the state that leaves the block
    offset: float = 0.0  # what that norm adds to its stored scale


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

# Where a patch can be folded into a block, by family; other families say that it is not known.
_DOWN = Writer("mlp.down_proj", "self_attn.o_proj")
_FC_OUT = Writer("mlp.fc_out", "attn.out_proj")
_FOUR = Writer("mlp.dense_4h_to_h", "self_attention.dense")
_FC2 = Writer("fc2", "self_attn.out_proj")
_BERTS = Writer("output.dense", norm="output.LayerNorm")
_NORMED = Writer("mlp.down_proj", norm="post_feedforward_layernorm")
WRITERS = {
    **dict.fromkeys(("llama", "mistral", "ministral", "qwen2", "qwen3", "smollm3", "phi3", "gemma", "stablelm"), _DOWN),
    **dict.fromkeys(("cohere", "cohere2", "olmo", "helium", "glm", "nemotron", "ernie4_5", "seed_oss", "arcee"), _DOWN),
    **dict.fromkeys(("hunyuan_v1_dense", "apertus", "granite"), _DOWN),
    **dict.fromkeys(("gptj", "codegen"), _FC_OUT),
    **dict.fromkeys(("bloom", "falcon"), _FOUR),
    "gpt_neox": replace(_FOUR, attention="attention.dense"),
    **dict.fromkeys(("opt", "xglm"), _FC2),
    **dict.fromkeys(("modernbert", "modernbert-decoder"), Writer("mlp.Wo", "attn.Wo")),
    "gpt2": Writer("mlp.c_proj", "attn.c_proj", "transposed"),
    "gpt_neo": Writer("mlp.c_proj", "attn.attention.out_proj"),
    "gpt_bigcode": Writer("mlp.c_proj", "attn.c_proj"),
    "starcoder2": Writer("mlp.c_proj", "self_attn.o_proj"),
    "phi": Writer("mlp.fc2", "self_attn.dense"),
    "mpt": Writer("ffn.down_proj", "attn.out_proj"),
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "electra", "deberta", "deberta-v2"), _BERTS),
    "mpnet": _BERTS,
    "distilbert": Writer("ffn.lin2", norm="output_layer_norm"),
    "openai-gpt": Writer("mlp.c_proj", layout="transposed", norm="ln_2"),
    **dict.fromkeys(("olmo2", "olmo3", "exaone4"), _NORMED),
    "glm4": Writer("mlp.down_proj", norm="post_mlp_layernorm"),
    **dict.fromkeys(("gemma2", "gemma3", "gemma3_text"), replace(_NORMED, offset=1.0)),
}
# Families whose feed-forward part is a mixture of experts: several matrices write, and which ones depends on the token.
EXPERTS = (
    *("mixtral", "qwen2_moe", "qwen3_moe", "qwen3_next", "olmoe", "phimoe", "deepseek_v2", "deepseek_v3", "dbrx"),
    *("gpt_oss", "granitemoe", "granitemoehybrid", "jamba", "glm4_moe", "ernie4_5_moe", "hunyuan_v1_moe", "dots1"),
)

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


@dataclass(frozen=True)
class LayerField:
    """Fields of configs that say together what each block is, and how they say it. Blocks count from 0 in configs."""

    how: Literal["entries", "cycle", "indices", "indices from 1", "first", "range", "step", "period", "every"]
    fields: tuple[str, ...]


# Config fields of all families that say something of single blocks: what they say is read of the blocks that stay, and
# written for their new numbers (`models/architecture.py`). What no value can say is refused.
# Lists with one entry per block. A field of such a name that has another length, or is a number, is about all blocks.
LAYER_LISTS = (
    *("layer_types", "layers_block_type", "mlp_layer_types", "attention_layers", "indexer_types", "no_rope_layers"),
    *("layer_rope_theta", "num_attention_heads_per_layer", "num_key_value_heads_per_layer", "sliding_windows"),
    *("activation_sparsity_pattern", "swiglu_limits", "swiglu_limits_shared", "attention_window"),
    *("intermediate_size", "moe_intermediate_size", "num_experts", "moe_topk"),
)
LAYER_FIELDS = (
    LayerField("cycle", ("block_types",)),  # begun again where it ends
    *(
        LayerField("indices", (name,))  # the numbers of some blocks
        for name in (
            *("attn_layer_indices", "full_attn_idxs", "hybrid_layer_ids", "local_layer_ids", "moe_layers"),
            "rope_scaling_layers",
        )
    ),
    LayerField("indices from 1", ("ple_layer_ids",)),
    LayerField("first", ("first_k_dense_replace",)),  # how many blocks there are before those of another kind
    LayerField("first", ("num_dense_layers",)),
    LayerField("range", ("moe_layer_start_index", "moe_layer_end_index", "moe_layer_interval")),
    LayerField("step", ("decoder_sparse_step", "mlp_only_layers")),  # every n-th block, but not these
    LayerField("period", ("attn_layer_period", "attn_layer_offset")),
    LayerField("period", ("expert_layer_period", "expert_layer_offset")),
    LayerField("every", ("rescale_every",)),  # something happens after every n-th block
)
# Names that transformers gives to fields about single blocks (a regular expression). Such a field, or a list with as
# many entries as there are blocks, is refused by its name unless it is known: above, or below as about no single block.
LAYER_NAMES = r"layers?(?!_norm)(_|$)|blocks?(_|$)|_(period|offset|interval|every|idxs|indices|pattern|step)(_|$)"
NOT_OF_BLOCKS = "|".join(
    (
        # they only fill in lists of `LAYER_LISTS` that a config leaves out, and those are written
        *("max_window_layers", "layer_group_size", "_?sliding_window_pattern", "prefix_dense_sliding_window_pattern"),
        *("global_attn_every_n_layers", "no_rope_layer_interval", "interleave_moe_layer_step", "attention_types"),
        # how many blocks there are, or of modules beside the blocks
        *("num_hidden_layers", "n_layers?", "num_layers", "num_blocks", "num_mem_blocks", "num_layers_per_stack"),
        *("(num_)?(encoder|decoder)_layers", "num_self_attends_per_block", "num_nextn_predict_layers"),
        *("num_mtp_layers", "mtp_(mlp_)?layer_types", "mtp_layers_block_type", "mtp_local_layer_ids"),
        # settings of all blocks alike
        *("block_(size|multiple_of|ffn_dim_multiplier|auto_adjust_ff_dim|per_row)", r"time_step_\w+"),
        *("index_(block_size|local_blocks|topk_blocks)", "num_random_blocks", "enable_moe_block"),
        *("initial_prior_(first|diagonal)_n_blocks", "(hidden_size|vocab_size)_per_layer_input"),
        *("use_weighted_layer_sum", "(mlp|ssm)_multipliers"),
        "scale_attn_by_inverse_layer_idx",  # what it changes is seen in the blocks that are built
        # lists of other things
        *(r"\w+_token_id", r"\w+_tokens", r"\w+_words_ids", "architectures", "languages", "type_vocab_sizes"),
        *("keys_to_ignore_at_inference", "L_bp_cycles"),
    )
)
# Settings that blocks keep of the whole model and from which only tensors are made that checkpoints hold.
ONLY_FOR_TENSORS = {"minimax": ("num_hidden_layers",)}  # the decay of its linear attention

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
