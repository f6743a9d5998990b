"""`compare` for attention: models against what their weights give."""

import os
import subprocess

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError
from layerscope.extraction import attention as attending
from layerscope.extraction import loop
from tests.helpers.cli import TWO_PROCESSES
from tests.helpers.models import random_model, random_network, save_random, word_tokenizer
from tests.similarity.attention_layers import BY_HEAD, NAMES

SENTENCES = ["the file is a list", "return", "not an object of that value", "in the list: a, b and c", "this string is"]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(f"{s} {'and ' * (i % 4)}".strip() for i, s in enumerate(SENTENCES * 3)) + "\n")
    return ls.task(path)


def test_what_is_not_read_is_said(corpus, caplog):
    ls.compare(random_model("bert"), measure="attention_js", task=corpus, max_length=8)
    said = [record.getMessage() for record in caplog.records]
    assert any("texts of corpus are cut off at 8 tokens." in sentence for sentence in said)
    assert any("words are left out" in sentence for sentence in said)


@pytest.mark.parametrize(("first", "second", "causal"), [("bert", "xlnet", False), ("gpt2", "roberta", True)])
def test_models_stream_and_give_what_their_weights_give(first, second, causal, corpus):
    a, b = (
        random_model(first),
        random_model(second, seed=1, **({"num_attention_heads": 2} if second == "roberta" else {})),
    )
    found = ls.compare(a, b, measure=NAMES, task=corpus)
    weights = [ls.attentions(m, corpus, pool="words") for m in (a, b)]
    for name, similarity in found.items():
        assert similarity.rows == similarity.columns == ["1", "2", "3", "4"]
        for i, row in enumerate(weights[0].layers):
            for j, column in enumerate(weights[1].layers):
                expected = ls.measure(name)(weights[0][row], weights[1][column], causal=causal)
                assert similarity.values[i, j] == pytest.approx(expected, abs=2e-5)
    by_head = found["attention_js"]
    expected = ls.measure("attention_js").heads(weights[0][2], weights[1][3], causal=causal)
    np.testing.assert_allclose(by_head.heads[1, 2], expected, atol=1e-5)
    assert by_head.matches[1, 2].tolist() == by_head.heads[1, 2].argmax(axis=1).tolist()
    assert found["attention_norm"].n == 15
    assert by_head.n == sum(w.shape[-1] for w in weights[0][1])
    assert by_head.provenance["settings"]["causal"] == [causal, False]


def test_all_pairs_of_several_models_each_on_what_both_can_attend_to(corpus):
    sources = [random_model("bert"), random_model("gpt2"), random_model("electra", seed=2)]
    names = ["attention_js", "attention_pwcca"]
    whole = ls.compare(sources, measure=names, task=corpus, names=["b", "g", "e"])
    for i, j in ((0, 1), (1, 1), (0, 2), (2, 1)):
        part = ls.compare(sources[i], sources[j], measure=names, task=corpus)
        for name in names:
            block = whole[name].values[4 * i : 4 * i + 4, 4 * j : 4 * j + 4]
            np.testing.assert_allclose(block, part[name].values, atol=1e-6)


def test_the_size_of_stacks_and_the_order_of_texts_change_nothing(corpus, tmp_path, monkeypatch):
    a, b = random_model("bert"), random_model("roberta", seed=1)
    expected = ls.compare(a, b, measure=NAMES, task=corpus)
    backwards = tmp_path / "backwards.txt"
    backwards.write_text("\n".join(reversed((tmp_path / "corpus.txt").read_text().splitlines())) + "\n")
    monkeypatch.setitem(attending._ATTENTION_BUDGET, "cpu", 1)
    monkeypatch.setattr(loop, "WINDOW", 4)
    for task in (corpus, ls.task(backwards)):
        found = ls.compare(a, b, measure=NAMES, task=task)
        for name in NAMES:
            np.testing.assert_allclose(found[name].values, expected[name].values, atol=2e-5)


def permuted(network, orders):
    """A BERT with the attention heads of each block in another order: the same function."""
    with torch.no_grad():
        for block, order in zip(network.encoder.layer, orders, strict=True):
            size = network.config.hidden_size // len(order)
            index = torch.cat([torch.arange(head * size, (head + 1) * size) for head in order])
            for name in ("query", "key", "value"):
                module = getattr(block.attention.self, name)
                module.weight.copy_(module.weight[index].clone())
                module.bias.copy_(module.bias[index].clone())
            output = block.attention.output.dense
            output.weight.copy_(output.weight[:, index].clone())
    return network


@pytest.mark.parametrize("name", BY_HEAD)
def test_a_model_with_its_heads_permuted_gives_the_permutation_and_1(name, corpus):
    generator = np.random.default_rng(0)
    orders = [generator.permutation(4) for _ in range(4)]
    twin = ls.load(permuted(random_network("bert", "encoder"), orders), tokenizer=word_tokenizer())
    found = ls.compare(random_model("bert"), twin, measure=name, task=corpus)
    np.testing.assert_allclose(np.diag(found.values), 1.0, atol=1e-5)
    for i, order in enumerate(orders):
        assert found.matches[i, i].tolist() == np.argsort(order).tolist()


def test_special_tokens_and_tokens_on_request(corpus):
    a, b = random_model("bert"), random_model("electra", seed=1)
    for options in ({"special": True}, {"pool": "tokens"}, {"pool": "tokens", "special": True}):
        found = ls.compare(a, b, measure="attention_js", task=corpus, **options)
        weights = [
            ls.attentions(m, corpus, pool="words", **options)
            if "pool" not in options
            else ls.attentions(m, corpus, **options)
            for m in (a, b)
        ]
        expected = ls.measure("attention_js")(weights[0][4], weights[1][1])
        assert found.values[3, 0] == pytest.approx(expected, abs=1e-5)
        assert found.n == sum(w.shape[-1] for w in weights[0][1])


def test_hidden_states_beside_attention(corpus):
    a, b = random_model("bert"), random_model("roberta", seed=1)
    found = ls.compare(a, b, measure=["cka", "attention_js", "svcca"], task=corpus, pool="words", keep=0.9)
    assert list(found) == ["cka", "attention_js", "svcca"]
    assert found["cka"].values.shape == (5, 5)
    assert found["attention_js"].values.shape == (4, 4)
    with pytest.raises(InputError, match="does not match attention heads"):
        found["cka"].matches  # noqa: B018


def test_options_of_compare_and_its_mistakes(corpus):
    a = random_model("bert")
    found = ls.compare(a, measure=["attention_svcca", "attention_js"], task=corpus, keep=0.8, causal=True)
    weights = ls.attentions(a, corpus, pool="words")
    expected = ls.measure("attention_svcca")(weights[1], weights[3], keep=0.8, causal=True)
    assert found["attention_svcca"].values[0, 2] == pytest.approx(expected, abs=1e-5)
    for options, sentence in (
        ({"ci": 0.9}, "no intervals and no baseline"),
        ({"pool": "mean"}, "the pool 'mean' is for hidden states"),
        ({"kepe": 1}, "has no option 'kepe'"),
    ):
        with pytest.raises(InputError, match=sentence):
            ls.compare(a, measure="attention_js", task=corpus, **options)
    with pytest.raises(InputError, match="name a task"):
        ls.compare(a, measure="attention_js")
    with pytest.raises(InputError, match="representations hold no attention"):
        ls.compare(ls.Representations.from_arrays([np.ones((3, 2))]), measure="attention_js")
    with pytest.raises(InputError, match="special=True belongs to measures of attention"):
        ls.compare(a, task=corpus, special=True)
    named = ls.compare(a, measure="attention_js", task=corpus, **{"attention_js.causal": True})
    np.testing.assert_array_equal(named.values, found["attention_js"].values)
    with pytest.raises(InputError, match="causal was asked for attention_js only"):
        ls.compare(a, measure=["attention_svcca", "attention_js"], task=corpus, **{"attention_js.causal": True})


def test_saved_loaded_and_drawn(corpus, tmp_path):
    found = ls.compare(
        random_model("bert"), random_model("roberta", num_attention_heads=2), measure="attention_pearson", task=corpus
    )
    again = ls.Similarity.load(found.save(tmp_path / "similarity.parquet"))
    np.testing.assert_array_equal(again.values, found.values)
    for cell, values in found.heads.items():
        np.testing.assert_array_equal(again.heads[cell], values)
        assert again.matches[cell].tolist() == found.matches[cell].tolist()
    ax = again.plot_heads(2, "4", tmp_path / "heads.png")
    assert (tmp_path / "heads.png").stat().st_size > 1000
    assert ax.images[0].get_array().shape == (4, 2)
    assert ax.collections[0].get_offsets()[:, 0].tolist() == found.matches[1, 3].tolist()
    assert again.plot(tmp_path / "layers.png").images[0].get_array().shape == (4, 4)
    with pytest.raises(InputError, match="There is no row layer 0; there are 1, 2, 3, 4"):
        found.plot_heads(0, 1)


@pytest.mark.slow
def test_two_processes_add_up_to_one(corpus, tmp_path):
    folder = save_random(tmp_path / "model", "bert")
    names = ["attention_js", "attention_norm", "attention_svcca"]
    expected = ls.compare(folder, task=corpus, measure=names)
    command = [*TWO_PROCESSES, "-m", "layerscope", "compare", folder, "--task", str(tmp_path / "corpus.txt")]
    command += ["--measure", ",".join(names), "-o", str(tmp_path / "out")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    for name, alone in expected.items():
        together = ls.Similarity.load(tmp_path / "out" / f"{name}.parquet")
        assert together.n == alone.n
        np.testing.assert_allclose(together.values, alone.values, atol=1e-5)


def test_texts_of_one_word_have_no_correlation(tmp_path):
    path = tmp_path / "words.txt"
    path.write_text("file\nlist\nvalue\n")
    found = ls.compare(random_model("bert"), measure=["attention_pearson", "attention_js", "attention_cka"], task=path)
    assert np.isnan(found["attention_pearson"].values).all()
    assert "row that varies" in found["attention_pearson"].reasons[0, 0]
    np.testing.assert_allclose(found["attention_js"].values, 1.0, atol=1e-7)
    assert np.isnan(found["attention_cka"].values).all()
    assert (found["attention_pearson"].matches[0, 1] == -1).all()
    found["attention_pearson"].plot_heads(1, 2, tmp_path / "heads.png")
