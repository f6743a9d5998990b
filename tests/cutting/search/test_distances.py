"""Distances of layers over the tokens of an exam are those of ls.compare, whatever is asked of the texts."""

import numpy as np
import pandas
import pytest
import torch

import layerscope as ls
from layerscope.cutting.search import Distances
from layerscope.evaluation.evaluate import make_evaluator
from tests.helpers.data import labelled_frame, random_texts, text_frame
from tests.helpers.models import language_model, random_classifier, random_network, word_tokenizer


def test_they_are_those_of_compare_and_of_block_influence():
    opened, data = random_classifier("bert"), labelled_frame()
    found = Distances(make_evaluator(opened, data, max_length=64)).measured()
    both = ls.compare(opened, task=data, measure=["cosine", "angular"], pool="tokens", max_length=64)
    np.testing.assert_allclose(found.cosine, both["cosine"].values, atol=1e-6)
    np.testing.assert_allclose(found.angular, both["angular"].values, atol=1e-6)
    influence = ls.block_influence(opened, data, max_length=64)
    np.testing.assert_allclose(found.influence, influence.values, atol=1e-6)
    assert found.tokens == len(ls.extract(opened, data, pool="tokens", max_length=64))


@pytest.mark.parametrize("bos", [None, "adds"])
def test_windows_of_running_text_are_read_as_they_are_scored(bos):
    opened = language_model(bos=bos)
    evaluator = make_evaluator(opened, ls.task(text_frame(20), kind="text"), max_length=16)
    found = Distances(evaluator).measured()
    sums, tokens = 0.0, 0
    for piece in evaluator._pieces:
        ids = torch.tensor(piece.ids[None])
        with torch.inference_mode():
            states = opened.network.model(input_ids=ids, output_hidden_states=True, use_cache=False).hidden_states
        own = torch.stack([state[0, int(bos is not None) :] for state in states[:3]]).double()
        cosine = torch.nn.functional.cosine_similarity(own[0], own[2], dim=-1)
        sums, tokens = sums + float((cosine.arccos() / torch.pi).sum()), tokens + len(cosine)
    assert found.tokens == tokens
    assert found.angular[0, 2] == pytest.approx(sums / tokens, abs=1e-6)


def test_both_texts_of_a_pair_and_padding_on_the_left():
    words = random_texts(24)
    pairs = pandas.DataFrame({"text": words[:12], "text_pair": words[12:], "label": np.linspace(0, 1, 12)})
    opened = ls.load(random_network("bert", "encoder"), tokenizer=word_tokenizer())
    found = Distances(make_evaluator(opened, ls.task(pairs, metric="spearman"))).measured()
    plain = ls.compare(opened, task=pandas.DataFrame({"text": words}), measure="angular", pool="tokens")
    np.testing.assert_allclose(found.angular, plain.values, atol=1e-6)
    causal = ls.load(random_network("gpt2"), tokenizer=word_tokenizer("gpt2"))
    rows = Distances(make_evaluator(causal, labelled_frame())).measured()
    np.testing.assert_allclose(
        rows.angular, ls.compare(causal, task=labelled_frame(), measure="angular", pool="tokens").values, atol=1e-6
    )
