"""Small random models of every family, networks of no family, and quick trainings; nothing is downloaded."""

from __future__ import annotations

from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch
from accelerate import cpu_offload, disk_offload, dispatch_model
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence
from torch.utils._python_dispatch import TorchDispatchMode
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

import layerscope as ls
from layerscope.evaluation.layer_heads import classifier_of
from layerscope.models.architecture import block_modules, head_modules

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,:;!?'\"()-_/=<>[]{}*+%#&@`~^$|\\"
VOCABULARY_WORDS = [
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
VOCABULARY = [*SPECIAL, *LETTERS, *(f"##{c}" for c in LETTERS), *VOCABULARY_WORDS, "##ing", "##ed", "##s", "##tion"]
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
LANGUAGE_CONFIGS = {
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
_SPARSE = {
    **{**_GROUPED, "num_hidden_layers": 5, "head_dim": 8},
    **{"num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16},
}
_LATENT = {
    **{**_SPARSE, "num_key_value_heads": 4, "n_routed_experts": 4, "n_shared_experts": 1, "n_group": 1},
    **{"topk_group": 1, "q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8},
    **{"v_head_dim": 8, "first_k_dense_replace": 2},
}
_MAMBA = {
    **{**_GROUPED, "num_hidden_layers": 6, "num_experts": 4, "num_experts_per_tok": 2, "mamba_n_heads": 4},
    **{"mamba_d_head": 16, "mamba_d_state": 8, "mamba_n_groups": 1, "mamba_chunk_size": 8, "mamba_dt_rank": 4},
}
_DELTA = {
    **{"linear_num_value_heads": 4, "linear_num_key_heads": 2, "linear_key_head_dim": 8},
    **{"linear_value_head_dim": 8, "full_attention_interval": 2},
}
# Language models whose blocks differ, by fields of their configs that are about single blocks and are not the defaults.
LAYERED_CONFIGS = {
    "afmoe": {**_SPARSE, "num_experts": 4, "num_dense_layers": 2, "global_attn_every_n_layers": 2},
    "bamba": {**_MAMBA, "attn_layer_indices": [1, 3, 4]},
    "deepseek_v2": _LATENT,
    "deepseek_v3": _LATENT,
    "dots1": {**_SPARSE, "n_routed_experts": 4, "n_shared_experts": 1, "first_k_dense_replace": 2},
    "ernie4_5_moe": {
        **{**_SPARSE, "moe_num_experts": 4, "moe_k": 2, "moe_num_shared_experts": 1},
        **{"moe_layer_start_index": 1, "moe_layer_end_index": 3, "moe_layer_interval": 1},
    },
    "glm4_moe": {**_SPARSE, "n_routed_experts": 4, "n_shared_experts": 1, "first_k_dense_replace": 2},
    "gpt_neo": {
        **{"num_layers": 5, "hidden_size": 32, "num_heads": 4, "intermediate_size": 48, "window_size": 2},
        **{"max_position_embeddings": 80, "attention_types": [[["global", "local"], 2], [["local"], 1]]},
    },
    "jamba": {
        **_MAMBA,
        **{"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 3, "expert_layer_offset": 2},
    },
    "lfm2": {**_GROUPED, "num_hidden_layers": 5, "full_attn_idxs": [1, 3, 4]},
    "lfm2_moe": {
        **{**_SPARSE, "num_experts": 4, "num_dense_layers": 2},
        "layer_types": ["conv", "full_attention", "conv", "full_attention", "full_attention"],
    },
    "llama4_text": {
        **{**_SPARSE, "num_local_experts": 4, "num_experts_per_tok": 1, "intermediate_size_mlp": 48},
        **{"moe_layers": [1, 3], "no_rope_layers": [1, 0, 1, 1, 0], "attention_chunk_size": 4},
    },
    "minimax": {
        **{**_SPARSE, "num_local_experts": 4, "block_size": 4},
        "layer_types": ["full_attention"] * 2 + ["linear_attention"] * 2 + ["full_attention"],
    },
    "qwen2_moe": {**_SPARSE, "num_experts": 4, "mlp_only_layers": [0, 3]},
    "qwen3_moe": {**_SPARSE, "num_experts": 4, "mlp_only_layers": [3], "decoder_sparse_step": 2},
    "qwen3_next": {**_SPARSE, **_DELTA, "num_experts": 4, "mlp_only_layers": [1]},
    "recurrent_gemma": {
        **{**_GROUPED, "num_hidden_layers": 6, "num_key_value_heads": 1, "attention_window_size": 4},
        **{"block_types": ["recurrent", "attention", "attention"], "lru_width": 32},
    },
    "smollm3": {**_GROUPED, "num_hidden_layers": 5, "no_rope_layers": [1, 0, 1, 1, 0]},
}
DECODERS = ("gpt2", "openai-gpt", "llama", "qwen3", *LANGUAGE_CONFIGS, *LAYERED_CONFIGS)
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
# Sizes that networks may be given to be smaller still.
SMALL = {"num_hidden_layers": 3, "hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 16}
TWO_BLOCKS = {**SMALL, "num_hidden_layers": 2}
SMALL_LLAMA = {**SMALL, "num_key_value_heads": 2}
N_WORDS = 50  # the vocabulary of the networks of no family
# Options and a plan with which a training takes a moment.
QUICK = {"epochs": 2, "batch": 8, "learning_rate": 1e-2}
FEW_STEPS = {"steps": 6, "batch": 4, "max_length": 16, "learning_rate": 1e-2}
WITHOUT_BLOCK_2 = ls.LayerPlan([1, 3])


def word_tokenizer(family: str = "bert") -> PreTrainedTokenizerFast:
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


@cache
def cased_tokenizer():
    """A tokenizer that keeps the case of letters."""
    other = word_tokenizer()
    other.backend_tokenizer.normalizer = None
    return other


def random_config(family: str, **changes: object) -> object:
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "cls_token_id": 2, "sep_token_id": 3}
    values = {**(CONFIGS | LANGUAGE_CONFIGS | LAYERED_CONFIGS)[family], "vocab_size": len(VOCABULARY), **ids, **changes}
    if family == "xlnet":
        values.setdefault("summary_type", "last")
    return AutoConfig.for_model(family, **values)


def random_network(family: str, kind: str = "classifier", seed: int = 0, labels: int = 3, **changes: object):
    """A random network in evaluation mode; its weights are large enough that every block matters."""
    opener = OPENERS[kind]
    torch.manual_seed(seed)
    extra = {"num_labels": labels} if kind in ("classifier", "tags") else {}
    net = opener.from_config(random_config(family, **extra, **changes)).eval()
    with torch.no_grad():
        for parameter in net.parameters():
            if parameter.ndim > 1:
                parameter.mul_(3.0)
    return net


def save_random(folder: Path, family: str, kind: str = "classifier", **options: object) -> str:
    """A checkpoint on disk, with its tokenizer."""
    random_network(family, kind, **options).save_pretrained(folder)
    word_tokenizer(family).save_pretrained(folder)
    return str(folder)


@contextmanager
def passed_over(blocks):
    """Blocks of a network of plain transformers hand on the state that they are given."""

    def given(_, args, kwargs, output):
        state = args[0] if args else kwargs["hidden_states"]
        return type(output)([state, *output[1:]]) if isinstance(output, (tuple, list)) else state

    hooks = [block.register_forward_hook(given, with_kwargs=True) for block in blocks]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def token_batch(rows: int = 3, length: int = 9, seed: int = 0, left: bool = False) -> dict[str, torch.Tensor]:
    """Random tokens with padding: row r has r padding tokens."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(len(SPECIAL), len(VOCABULARY), (rows, length), generator=generator)
    mask = torch.ones_like(ids)
    for row in range(1, rows):
        padding = slice(0, row) if left else slice(length - row, length)
        mask[row, padding] = 0
        ids[row, padding] = 0
    return {"input_ids": ids, "attention_mask": mask}


def random_model(family="bert", kind="encoder", **options):
    return ls.load(random_network(family, kind, **options), tokenizer=word_tokenizer(family))


def random_classifier(family, **options):
    return random_model(family, "classifier", **options)


def two_block_encoder(family="bert", tokenizer=None, **options):
    network = random_network(family, "encoder", **{**TWO_BLOCKS, **options})
    return ls.load(network, tokenizer=tokenizer or word_tokenizer(family))


def planted_pair():
    """A classifier of four blocks, each of which adds a constant to every state.

    Those of blocks 2 and 3 are opposite, so that without both it answers as before; without one of them it often
    answers otherwise, without 1 seldom, and without 4 most of all.
    """
    network = random_network("gpt2", n_layer=4)
    direction = torch.nn.functional.normalize(torch.randn(4, network.config.n_embd), dim=1)
    spread = network.transformer.wte.weight.norm(dim=1).mean()
    sizes = {1: 0.1, 2: 0.5, 3: -0.5, 4: 1.0}
    with torch.no_grad():
        for block, size in sizes.items():
            module = network.transformer.h[block - 1]
            for projection in (module.attn.c_proj, module.mlp.c_proj):
                projection.weight.zero_()
                projection.bias.zero_()
            module.mlp.c_proj.bias.copy_(size * spread * direction[0 if block in (2, 3) else block - 1])
    return ls.load(network, tokenizer=word_tokenizer("gpt2"))


@cache
def shared_classifier(seed=0):
    return ls.load(random_network("bert", seed=seed, labels=2, **SMALL), tokenizer=word_tokenizer())


@cache
def shared_encoder(seed=0):
    return ls.load(random_network("bert", "encoder", seed=seed, **SMALL), tokenizer=word_tokenizer())


@cache
def shared_masked():
    return ls.load(random_network("bert", "masked", **SMALL), tokenizer=word_tokenizer())


def language_model(family="llama", kind="next", bos=None, **options):
    """A random model; with `bos` its tokenizer has a first token, and puts it in front itself where it is `adds`.

    Where it is `closes`, the tokenizer puts a last token after every text, too.
    """
    tokenizer = word_tokenizer(family)
    if bos is not None:
        tokenizer.bos_token = "[CLS]"
    if bos in ("adds", "closes"):
        special = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("[CLS]", "[SEP]")]
        template = "[CLS] $A" if bos == "adds" else "[CLS] $A [SEP]"
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(template, None, special)
    return ls.load(random_network(family, kind, **options), tokenizer=tokenizer)


def small_decoder(**changes):
    return language_model("llama", **{**SMALL_LLAMA, **changes})


def small_masked():
    return language_model("bert", "masked", **SMALL)


def small_classifier(labels=3):
    return ls.load(random_network("bert", labels=labels, **SMALL), tokenizer=word_tokenizer())


def small_encoder():
    return ls.load(random_network("bert", "encoder", **SMALL), tokenizer=word_tokenizer())


@torch.inference_mode()
def token_losses(opened, ids):
    """The loss of every token after the first, in nats."""
    logits = opened.network(input_ids=torch.tensor([ids]), use_cache=False).logits[0, :-1].double()
    return torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:], dtype=torch.long), reduction="none").numpy()


def word_numbers(texts, max_length):
    """Words by a number that their letters give; 0 is padding."""
    split = [text.split() if isinstance(text, str) else list(text) for text in texts]
    return [torch.tensor([1 + sum(map(ord, word)) % (N_WORDS - 1) for word in words[:max_length]]) for words in split]


def by_words(texts, max_length=100):
    """A batch of words, padded on the right."""
    ids = pad_sequence(word_numbers(texts, max_length), batch_first=True)
    mask = ids > 0
    return {"inputs": ids, "mask": mask, "words": torch.where(mask, torch.arange(ids.shape[1]), -1)}


def with_lengths(texts, max_length=100):
    batch = by_words(texts, max_length)
    return {**batch, "inputs": (batch["inputs"], batch["mask"].sum(dim=1))}


class Recurrent(nn.Module):
    """A BiLSTM of two layers over packed sequences."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(N_WORDS, 6, padding_idx=0)
        self.lstms = nn.ModuleList(nn.LSTM(w, 5, bidirectional=True, batch_first=True) for w in (6, 10))

    def forward(self, ids, lengths):
        x = pack_padded_sequence(self.embed(ids), lengths.cpu(), batch_first=True, enforce_sorted=False)
        for lstm in self.lstms:
            x, _ = lstm(x)
        return x


class Convolutional(nn.Module):
    """Two convolutions over words; with `masked` padding is set to 0 before each, so that it changes nothing."""

    def __init__(self, masked: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(N_WORDS, 6)
        self.convolutions = nn.ModuleList(nn.Conv1d(6, 6, 3, padding=1) for _ in range(2))
        self.masked = masked

    def forward(self, ids):
        real = (ids > 0)[:, None]
        x = self.embed(ids).transpose(1, 2)
        for convolution in self.convolutions:
            x = torch.tanh(convolution(x * real if self.masked else x))
        return x


class Plain(nn.Module):
    """Three linear blocks over the embeddings of tokens, as a tokenizer of transformers numbers them."""

    def __init__(self, vocabulary: int = 200, width: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(3))

    def forward(self, input_ids):
        x = self.embed(input_ids)
        for block in self.blocks:
            x = block(x)
        return x


READING = ("_local_scalar_dense", "item", "nonzero", "masked_select", "is_nonzero", "equal", "segment_reduce")


class NoWaiting(TorchDispatchMode):
    """Raises where an operation reads a value, in the thread that entered it."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.overloadpacket.__name__ in READING:
            raise AssertionError(f"{func} reads a value from the device")
        return func(*args, **(kwargs or {}))


def check_what_changes(family, task, strategy, method, size, expected):
    """Tune, and compare the parameters that changed with `expected(names in the tuned blocks, all names, anatomy)`.

    The head changes under every method. An embedding that no text uses, or a bias that a softmax cancels, may stay as
    it was; a whole weight matrix may not.
    """
    base = random_model(family)
    training = ls.tune(base, task, strategy=strategy, method=method, size=size, **QUICK)
    before, tuned = dict(classifier_of(base, task, 0).network.named_parameters()), training.model
    after = dict(tuned.named_parameters())
    names = {id(p): name for name, p in after.items()}
    blocks = block_modules(tuned.base_model, base.architecture)
    inside = {names[id(p)] for b in training.job.strategy.blocks for p in blocks[b - 1].parameters()}
    heads = tuple(f"{path}." for path in head_modules(tuned, base.architecture))
    wanted = {n for n in after if n.startswith(heads)} | expected(inside, set(after), base.architecture)
    changed = {name for name, value in after.items() if name not in before or not torch.equal(before[name], value)}
    assert changed <= wanted
    untouched = {n for n in wanted - changed if "position" not in n and "token_type" not in n and "key.bias" not in n}
    assert not {n for n in untouched if n.endswith("weight") and "embed" not in n and "mask" not in n}, untouched
    assert len(blocks) == int(training.job.strategy.head)


def tuning_cases():
    """Every family with every kind of strategy that tunes blocks."""
    strategies = ("full", "(2, 3, 4)", "(2, 3, 3)")
    shared = [(family, strategy) for family in FAMILIES for strategy in strategies]
    return [(family, strategy) for family, strategy in shared if family != "albert" or strategy == "full"]


BLOCK_LISTS = {"bert": "bert.encoder.layer", "llama": "model.layers"}


def on_the_host(network, folder):
    return cpu_offload(network, execution_device=torch.device("cpu"))


def on_the_disk(network, folder):
    return disk_offload(network, str(folder), execution_device=torch.device("cpu"))


def half_on_the_disk(network, folder):
    """As `device_map="auto"` does where memory is short: the upper blocks wait on the disk."""
    blocks = BLOCK_LISTS[network.config.model_type]
    places = {name: "cpu" for name, child in network.named_modules() if not list(child.children())}
    places = {name: place for name, place in places.items() if not name.startswith(blocks)}
    places |= {f"{blocks}.{k}": "disk" if k > 1 else "cpu" for k in range(4)}
    return dispatch_model(network, places, main_device="cpu", offload_dir=str(folder), force_hooks=True)


WAYS_TO_OFFLOAD = [on_the_host, on_the_disk, half_on_the_disk]
