"""Attention between words and tokens, against loops over sub-words."""

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError
from layerscope.extraction import attention as attending
from layerscope.extraction import loop
from layerscope.extraction.attention import AttentionReading, AttentionStreamer, between_units
from layerscope.extraction.extract import examples_of
from tests.helpers.models import FAMILIES, random_network, word_tokenizer


def model(family, seed=0):
    return ls.load(random_network(family, "encoder", seed=seed), tokenizer=word_tokenizer(family))


def words_of_tokens(tokenizer, words):
    """Per token the number of its word, -1 for a special token, by tokenising word after word."""
    found = []
    for number, word in enumerate(words):
        found += [number] * len(tokenizer(word, add_special_tokens=False)["input_ids"])
    whole = tokenizer(" ".join(words), return_special_tokens_mask=True)
    special = np.asarray(whole["special_tokens_mask"], bool)
    result = np.full(len(special), -1)
    result[~special] = found
    return result


def plain(weights, of_token, special):
    """The papers' way, a loop for every pair of words: sum over attended, mean over attending, rows to a sum of 1."""
    groups = [np.flatnonzero(of_token == word) for word in range(of_token.max() + 1)]
    if special:
        alone = np.flatnonzero(of_token < 0)
        first, last = groups[0][0], groups[-1][-1]
        before, after = [[p] for p in alone if p < first], [[p] for p in alone if p > last]
        groups = before + groups + after
    result = np.zeros((len(weights), len(groups), len(groups)))
    for head in range(len(weights)):
        for i, attending_tokens in enumerate(groups):
            for j, attended in enumerate(groups):
                result[head, i, j] = np.mean([sum(weights[head, s, u] for u in attended) for s in attending_tokens])
    return result / result.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("family", FAMILIES)
def test_attention_between_words_is_the_papers(family, special, corpus):
    subject = model(family)
    tokens = ls.attentions(subject, corpus)
    words = ls.attentions(subject, corpus, pool="words", special=special, layers=[1, 4])
    assert words.layers == [1, 4]
    for i, text in enumerate(corpus.split().words):
        of_token = words_of_tokens(subject.tokenizer, text)
        for layer in words.layers:
            expected = plain(tokens[layer][i].double().numpy(), of_token, special)
            np.testing.assert_allclose(words[layer][i], expected, atol=2e-5)
            np.testing.assert_allclose(words[layer][i].sum(-1), 1.0, atol=1e-5)


@pytest.mark.parametrize("special", [False, True])
def test_attention_between_tokens(special, task):
    subject = model("bert")
    whole = ls.attentions(subject, task)
    found = ls.attentions(subject, task, pool="tokens", special=special)
    for i in range(len(found)):
        expected = whole[2][i] if special else whole[2][i][:, 1:-1, 1:-1]
        expected = expected / expected.sum(-1, keepdim=True)
        torch.testing.assert_close(found[2][i], expected, rtol=1e-4, atol=1e-5)


def test_the_size_of_stacks_changes_nothing(corpus, monkeypatch):
    subject = model("roberta")
    expected = ls.attentions(subject, corpus, pool="words")
    monkeypatch.setitem(attending._ATTENTION_BUDGET, "cpu", 1)
    monkeypatch.setattr(loop, "WINDOW", 3)
    found = ls.attentions(subject, corpus, pool="words")
    for i in range(len(found)):
        torch.testing.assert_close(found[3][i], expected[3][i], rtol=1e-4, atol=1e-5)


def test_a_stack_holds_words_that_every_model_sees_whole(corpus):
    models = [model("bert"), model("gpt2")]
    streamer = AttentionStreamer(models, AttentionReading(max_length=12))
    seen = []
    streamer.feed(examples_of(corpus, None, None), seen.append)
    assert sorted(np.concatenate([stack.positions for stack in seen])) == list(range(7))
    for stack in seen:
        assert {w.shape[1:] for w in stack.weights} == {(len(stack.texts), *stack.weights[0].shape[2:])}
        for weights in stack.weights:
            assert torch.allclose(weights.sum(-1), torch.ones(()), atol=1e-5)
    examples = examples_of(corpus, None, None)
    assert [streamer.is_causal(k, examples) for k in range(2)] == [False, True]


def test_a_row_that_gives_everything_to_dropped_tokens_stays_zero():
    weights = torch.tensor([[[[0.2, 0.3, 0.5], [1.0, 0.0, 0.0], [0.1, 0.6, 0.3]]]])
    members = torch.tensor([[[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]])
    found = between_units(weights, members)
    torch.testing.assert_close(found, torch.tensor([[[[0.0, 0.0], [2 / 3, 1 / 3]]]]))


def test_mistakes_are_sentences(task, corpus):
    assert len(ls.attentions(model("bert"), task, pool="words")) == len(task.split())  # split at whitespace
    with pytest.raises(InputError, match="no unit of attention"):
        ls.attentions(model("bert"), corpus, pool="mean")
    both = AttentionStreamer([model("bert"), model("gpt2")], AttentionReading(special=True))
    with pytest.raises(InputError, match="the same special tokens"):
        both.feed(examples_of(corpus, None, None), print)
    both = AttentionStreamer([model("bert"), model("gpt2")], AttentionReading("tokens"))
    with pytest.raises(InputError, match="one and the same tokenizer"):
        both.feed(examples_of(corpus, None, None), print)


def test_finite_weights_are_looked_at_when_the_next_window_is_under_way(monkeypatch):
    """And the network is prepared for a pass, not for its windows."""
    one, task = model("bert"), ls.task("pydocs").split("validation").take(slice(13))
    one.network.train()
    seen, switched = [], []
    numpy, train = attending.PendingCopy.numpy, type(one.network).train
    monkeypatch.setattr(attending.PendingCopy, "numpy", lambda self: seen.append("read") or numpy(self))
    monkeypatch.setattr(type(one.network), "train", lambda self, mode=True: switched.append(mode) or train(self, mode))
    streamer = AttentionStreamer([one], AttentionReading("words"))
    streamer.feed(task, lambda stack: seen.append(len(stack.texts)))
    assert seen.count("read") == 1
    of_one_window, seen[:], switched[:] = list(switched), [], []
    monkeypatch.setattr(loop, "WINDOW", 4)
    streamer.feed(task, lambda stack: seen.append(len(stack.texts)))
    assert seen.count("read") == 3
    assert sum(seen[: seen.index("read")]) == 8  # two windows
    assert seen[-2:] == ["read", "read"]
    assert switched == of_one_window
