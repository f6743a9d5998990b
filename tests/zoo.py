"""Small random models of every family, with one tokenizer, made here and nowhere downloaded."""

from __future__ import annotations

from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForPreTraining,
    AutoModelForQuestionAnswering,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedTokenizerFast,
)

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,:;!?'\"()-_/=<>[]{}*+%#&@`~^$|\\"
WORDS = [
    "the",
    "a",
    "of",
    "to",
    "and",
    "in",
    "is",
    "for",
    "file",
    "return",
    "value",
    "string",
    "object",
    "list",
    "this",
    "that",
    "with",
    "from",
    "not",
    "an",
]
VOCABULARY = [*SPECIAL, *LETTERS, *(f"##{c}" for c in LETTERS), *WORDS, "##ing", "##ed", "##s", "##tion"]

_COMMON = {
    "num_hidden_layers": 4,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 80,
}
_GPT = {"n_layer": 4, "n_embd": 32, "n_head": 4, "n_positions": 80}
CONFIGS: dict[str, dict] = {
    "bert": _COMMON,
    "roberta": {**_COMMON, "max_position_embeddings": 90},
    "albert": {**_COMMON, "embedding_size": 16},
    "electra": {**_COMMON, "embedding_size": 16},
    "deberta": {**_COMMON, "relative_attention": True, "pos_att_type": ["c2p", "p2c"]},
    "deberta-v2": {
        **_COMMON,
        "relative_attention": True,
        "pos_att_type": ["c2p", "p2c"],
        "position_buckets": 8,
    },
    "distilbert": {"n_layers": 4, "dim": 32, "n_heads": 4, "hidden_dim": 48, "max_position_embeddings": 80},
    "xlnet": {"n_layer": 4, "d_model": 32, "n_head": 4, "d_inner": 48},
    "gpt2": _GPT,
    "openai-gpt": _GPT,
    "modernbert": {**_COMMON, "local_attention": 6, "global_attn_every_n_layers": 3},
    "llama": {**_COMMON, "num_key_value_heads": 2},
    "qwen3": {**_COMMON, "num_key_value_heads": 2, "head_dim": 8},
}
FAMILIES = tuple(CONFIGS)
_GROUPED = {**_COMMON, "num_key_value_heads": 2}
# Language models without a record of their own: the generic finder looks into them.
LANGUAGE = {
    "qwen2": _GROUPED,
    "mistral": {**_GROUPED, "head_dim": 8},
    "gemma3_text": {
        **_GROUPED,
        "head_dim": 8,
        "sliding_window": 8,
        "layer_types": ["sliding_attention"] * 3 + ["full_attention"],
    },
    "phi3": _GROUPED,
    "olmo2": _GROUPED,
    "opt": {**_COMMON, "ffn_dim": 48, "word_embed_proj_dim": 32},
    "gpt_neox": _COMMON,
    "bloom": {"n_layer": 4, "hidden_size": 32, "n_head": 4},
}
DECODERS = ("gpt2", "openai-gpt", "llama", "qwen3", *LANGUAGE)
OPENERS = {
    "classifier": AutoModelForSequenceClassification,
    "choice": AutoModelForMultipleChoice,
    "encoder": AutoModel,
    "next": AutoModelForCausalLM,
    "masked": AutoModelForMaskedLM,
    "tags": AutoModelForTokenClassification,
    "spans": AutoModelForQuestionAnswering,
    "pretraining": AutoModelForPreTraining,
}


def tokenizer(family: str = "bert") -> PreTrainedTokenizerFast:
    """A WordPiece tokenizer over letters and a few words; XLNet's puts its summary token last."""
    vocabulary = {token: i for i, token in enumerate(VOCABULARY)}
    backend = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    backend.normalizer = normalizers.BertNormalizer(lowercase=True)
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    cls, sep = ("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])
    if family == "xlnet":
        single, pair = "$A [SEP] [CLS]:2", "$A [SEP] $B:1 [SEP]:1 [CLS]:2"
        backend.post_processor = processors.TemplateProcessing(single=single, pair=pair, special_tokens=[cls, sep])
    elif family not in DECODERS:
        backend.post_processor = processors.BertProcessing(sep, cls)
    names = ["input_ids", "attention_mask"] + (["token_type_ids"] if family not in DECODERS else [])
    special = {f"{name}_token": f"[{name.upper()}]" for name in ("pad", "unk", "cls", "sep", "mask")}
    if family in DECODERS:
        special = {"unk_token": "[UNK]"}  # as GPT-2 and Llama: no summary token, no padding token
    return PreTrainedTokenizerFast(tokenizer_object=backend, model_input_names=names, **special)


def config(family: str, **changes: object) -> object:
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
    values = {**(CONFIGS | LANGUAGE)[family], "vocab_size": len(VOCABULARY), **ids, **changes}
    if family == "xlnet":
        values.setdefault("summary_type", "last")
    return AutoConfig.for_model(family, **values)


def network(family: str, kind: str = "classifier", seed: int = 0, labels: int = 3, **changes: object):
    """A random network in evaluation mode; its weights are large enough that every block matters."""
    opener = OPENERS[kind]
    torch.manual_seed(seed)
    extra = {"num_labels": labels} if kind in ("classifier", "tags") else {}
    net = opener.from_config(config(family, **extra, **changes)).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.ndim > 1:
                parameter.mul_(3.0)
    return net


def save(folder: Path, family: str, kind: str = "classifier", **options: object) -> str:
    """A checkpoint on disk, with its tokenizer."""
    network(family, kind, **options).save_pretrained(folder)
    tokenizer(family).save_pretrained(folder)
    return str(folder)


def inputs(rows: int = 3, length: int = 9, seed: int = 0, left: bool = False) -> dict[str, torch.Tensor]:
    """Random tokens with padding: row r has r padding tokens."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(len(SPECIAL), len(VOCABULARY), (rows, length), generator=generator)
    mask = torch.ones_like(ids)
    for row in range(1, rows):
        padding = slice(0, row) if left else slice(length - row, length)
        mask[row, padding] = 0
        ids[row, padding] = 0
    return {"input_ids": ids, "attention_mask": mask}
