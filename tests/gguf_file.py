"""A tiny Llama as a GGUF file, written by the package gguf as llama.cpp's converter does it."""

import numpy as np
import zoo

SIZES = {
    "num_hidden_layers": 3,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
WORDS = ["fi", "le", "file", "li", "st", "list", "an", "and", "th", "the"]
MERGES = ["f i", "l e", "fi le", "l i", "s t", "li st", "a n", "an d", "t h", "th e"]
PARTS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def tokens():
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return ["<|end|>", *bytes_to_unicode().values(), *WORDS]


def network(seed=0, **options):
    return zoo.network("llama", "next", seed=seed, **{"vocab_size": len(tokens()), **SIZES, **options})


def name_of(key):
    """A tensor's name in llama.cpp."""
    whole = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    stem = key.removesuffix(".weight")
    if stem in whole:
        return f"{whole[stem]}.weight"
    _, _, block, part = stem.split(".", 3)
    return f"blk.{block}.{PARTS[part]}.weight"


def permuted(weights, heads):
    """Rows of queries and keys in the order of llama.cpp's rotary embeddings."""
    return weights.reshape(heads, 2, -1, weights.shape[1]).swapaxes(1, 2).reshape(weights.shape)


def write(path, net=None, kind="F32", architecture="llama", tokenizer=True, drop=(), extra=None, words=(), **metadata):
    """The network as a GGUF file; matrices are quantised as `kind` says. Gives the path."""
    import gguf

    net = network(vocab_size=len(tokens()) + len(words)) if net is None else net
    config = net.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    for key, value in metadata.items():
        kinds = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string}
        kinds[type(value)](key.replace("__", "."), value)
    if tokenizer:
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list([*tokens(), *words])
        writer.add_token_types([3] + [1] * (len(tokens()) - 1 + len(words)))
        writer.add_token_merges(MERGES)
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(0)
    for key, tensor in net.state_dict().items():
        if key in drop or (key == "lm_head.weight" and config.tie_word_embeddings):
            continue
        values, quantisation = tensor.numpy(), gguf.GGMLQuantizationType["F32"]
        if "q_proj" in key or "k_proj" in key:
            values = permuted(values, config.num_attention_heads if "q_proj" in key else config.num_key_value_heads)
        if values.ndim == 2:
            quantisation = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name_of(key), gguf.quants.quantize(values, quantisation), raw_dtype=quantisation)
    for name, count in (extra or {}).items():
        writer.add_tensor(name, np.ones(count, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
