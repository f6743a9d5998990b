"""Every head: truncated, skipped, saved and opened by plain transformers with no tensor missing, nothing changed."""

import pytest
import torch
from safetensors.torch import load_file

import layerscope as ls
from layerscope.models.architecture import only_blocks
from layerscope.models.replay import caches_off
from layerscope.models.selfcheck import primary
from tests.helpers.models import LANGUAGE_CONFIGS, VOCABULARY, random_network, token_batch, word_tokenizer

NEXT = ("gpt2", "llama", "qwen3", *LANGUAGE_CONFIGS)
MASKED = ("bert", "roberta", "albert", "distilbert", "electra", "deberta-v2", "modernbert")
TOKENS = ("bert", "roberta", "deberta-v2")
CASES = [
    *((family, "next") for family in NEXT),
    *((family, "masked") for family in MASKED),
    *((family, kind) for family in TOKENS for kind in ("tags", "spans")),
    *(("electra", "pretraining"), ("bert", "pretraining"), ("albert", "pretraining"), ("xlnet", "next")),
    *(("xlnet", "spans"), ("openai-gpt", "next")),
]


@pytest.fixture(params=CASES, ids="-".join)
def case(request, tmp_path):
    family, kind = request.param
    folder = tmp_path / "whole"
    random_network(family, kind).save_pretrained(folder)
    word_tokenizer(family).save_pretrained(folder)
    return family, kind, ls.load(folder)


@torch.inference_mode()
def removed(model, keep, inputs):
    """The logits of the network itself with the other blocks really taken out."""
    with only_blocks(model.network, model.architecture, keep), caches_off(model.network):
        return primary(model.network(**inputs))


def test_cuts_are_saved_whole_and_compute_what_is_left(case, tmp_path):
    family, kind, model = case
    for name, keep, smaller in (
        ("truncated", [1, 2], lambda: ls.truncate(model, 2)),
        ("skipped", [1, 4], lambda: ls.skip(model, 2, 3)),
    ):
        folder = ls.save(smaller(), tmp_path / name)
        again, info = type(model.network).from_pretrained(folder, output_loading_info=True)
        assert not info["missing_keys"]
        assert not info["unexpected_keys"]
        inputs = token_batch(rows=2)
        with torch.inference_mode(), caches_off(again.eval()):
            got = primary(again(**inputs))
        torch.testing.assert_close(got, removed(model, keep, inputs), rtol=1e-4, atol=1e-5)
        if kind == "next" and family != "xlnet":
            _generates(again)


def _generates(network):
    """The same tokens with the cache on and off."""
    prompt = token_batch(rows=1, length=6)["input_ids"]
    options = {"max_new_tokens": 6, "do_sample": False, "pad_token_id": 0, "eos_token_id": None}
    on, off = (network.generate(prompt, use_cache=use, **options) for use in (True, False))
    assert torch.equal(on, off)
    assert on.shape[1] == 12


def test_weights_that_are_tied_stay_tied(tmp_path):
    for family, kind in (("gpt2", "next"), ("bert", "masked"), ("gemma3_text", "next"), ("llama", "next")):
        tied = {"tie_word_embeddings": True} if family == "llama" else {}
        network = random_network(family, kind, **tied)
        assert network.get_output_embeddings().weight is network.get_input_embeddings().weight
        smaller = ls.truncate(ls.load(network, tokenizer=word_tokenizer(family)), 2)
        assert smaller.get_output_embeddings().weight is smaller.get_input_embeddings().weight
        saved = load_file(ls.save(smaller, tmp_path / family) / "model.safetensors")
        assert sum(tensor.shape[0] == len(VOCABULARY) and tensor.ndim == 2 for tensor in saved.values()) == 1


def test_states_never_run_a_vocabulary_head(monkeypatch):
    model = ls.load(random_network("llama", "next"), tokenizer=word_tokenizer("llama"))
    monkeypatch.setattr(type(model.network.lm_head), "forward", lambda self, x: _refuse(self, x, model.network.lm_head))
    texts = ["the file", "a list of value s", "return this string", "not an object"]
    import pandas

    data = ls.task(pandas.DataFrame({"text": texts}))
    assert len(ls.extract(model, data, pool="last")) == 4
    assert ls.compare(model, task=data, pool="mean").values.shape == (5, 5)


def _refuse(module, x, head):
    assert module is not head, "the vocabulary head was run"
    return torch.nn.functional.linear(x, module.weight, module.bias)
