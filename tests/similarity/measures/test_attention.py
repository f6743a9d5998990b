"""Measures of attention against their plain definitions, on arrays and on models."""

import math
import os
import subprocess
import sys

import attention_reference as reference
import numpy as np
import pytest
import torch
import zoo
from hypothesis import given, settings
from hypothesis import strategies as st

import layerscope as ls
from layerscope.errors import InputError, LayerscopeWarning
from layerscope.extraction import attending, loop
from layerscope.similarity.attention import heads, jensen_shannon
from layerscope.similarity.measures import attention
from layerscope.similarity.registry import registry

BY_HEAD = ["attention_norm", "attention_pearson", "attention_js"]
WHOLE = ["attention_cka", "attention_svcca", "attention_pwcca"]
NAMES = BY_HEAD + WHOLE
LENGTHS = [1, 4, 7, 4, 2, 7, 7, 9, 1]


def layer(count, seed=0, lengths=LENGTHS, sharp=2.0, causal=False):
    """Random attention weights of one layer: a list of (heads, t, t)."""
    generator = np.random.default_rng(seed)
    found = []
    for t in lengths:
        scores = np.exp(sharp * generator.normal(size=(count, t, t)))
        scores = np.tril(scores) if causal else scores
        found.append(scores / scores.sum(axis=-1, keepdims=True))
    return found


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", NAMES)
def test_agreement_with_the_definition_on_ragged_sentences(name, seed, causal):
    a, b = layer(4, seed), layer(3, seed + 10)
    assert ls.measure(name)(a, b, causal=causal) == pytest.approx(reference.value(name, a, b, causal), abs=1e-8)
    if name in BY_HEAD:
        expected = reference.heads(name, a, b, causal)
        np.testing.assert_allclose(ls.measure(name).heads(a, b, causal=causal), expected, atol=1e-9)


@pytest.mark.parametrize("name", NAMES)
def test_zeros_uniform_heads_masked_rows_and_words_alone(name):
    a, b = layer(4, 1, causal=True), layer(3, 2)
    a[2][1] = 1 / 7  # a uniform head: no row of it varies
    a[3][:, 2] = 0.0  # a row that was masked for every head
    b[5][1, 4] = 0.0  # and one that was masked for a single one
    assert ls.measure(name)(a, b) == pytest.approx(reference.value(name, a, b), abs=1e-8)
    assert ls.measure(name)(b, a) == pytest.approx(reference.value(name, b, a), abs=1e-8)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), lengths=st.lists(st.integers(1, 6), min_size=2, max_size=6))
def test_any_lengths_any_order(name, seed, lengths):
    lengths = [*lengths, 6, 6]
    a, b = layer(3, seed, lengths), layer(2, seed + 1, lengths)
    found = ls.measure(name)(a, b)
    assert found == pytest.approx(reference.value(name, a, b), abs=1e-7)
    order = np.random.default_rng(seed).permutation(len(lengths))
    assert ls.measure(name)([a[i] for i in order], [b[i] for i in order]) == pytest.approx(found, abs=1e-10)


@pytest.mark.parametrize("name", BY_HEAD)
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 1000), sharp=st.floats(0.1, 30.0))
def test_a_layer_with_its_heads_in_another_order_is_itself(name, seed, sharp):
    a = layer(5, seed, sharp=sharp)
    order = np.random.default_rng(seed).permutation(5)
    values = ls.measure(name).heads(a, [sentence[order] for sentence in a])
    assert [int(row.argmax()) for row in values] == [int(np.flatnonzero(order == i)[0]) for i in range(5)]
    np.testing.assert_allclose(values.max(axis=1), 1.0, atol=1e-12)
    assert ls.measure(name)(a, a) == pytest.approx(1.0, abs=1e-12)
    low = ls.measure(name).low
    assert (values >= low - 1e-12).all()
    assert (values <= 1 + 1e-12).all()


def test_a_head_has_distance_0_from_itself_even_if_weights_are_tiny():
    a = [sentence.astype(np.float32) for sentence in layer(4, sharp=20.0)]
    assert (np.diag(ls.measure("attention_norm").heads(a, a)) == 1.0).all()
    near = [sentence + 1e-4 * other for sentence, other in zip(a, layer(4, 5), strict=True)]
    expected = reference.heads("attention_norm", a, near)
    np.testing.assert_allclose(ls.measure("attention_norm").heads(a, near), expected, atol=1e-9)


@pytest.mark.parametrize("name", BY_HEAD)
@pytest.mark.parametrize("count", [1, 3, 4, 7])
def test_one_side_against_itself_is_two_equal_sides(name, count):
    """Of a side's own pairs fewer are computed."""
    side = torch.from_numpy(np.stack(layer(count, 3, [5, 5, 5]), axis=1))
    measure, mask = registry()[name].head, heads.Mask.of([side])
    one, two = measure.prepare(side, mask), measure.prepare(side.clone(), mask)
    torch.testing.assert_close(measure.update(one, one), measure.update(one, two), rtol=0, atol=1e-12)


def test_stacks_of_any_size_give_the_same(monkeypatch):
    a, b = layer(4), layer(3, 1)
    expected = [ls.measure(name)(a, b) for name in NAMES]
    monkeypatch.setattr(attention, "_STACK", 1)
    monkeypatch.setattr(heads, "_DISTANCES", 1)
    monkeypatch.setattr(heads, "_GPU_DISTANCES", 1)
    monkeypatch.setattr(jensen_shannon, "_COLUMNS", 5)
    monkeypatch.setattr(jensen_shannon, "_BLOCK", 9)
    monkeypatch.setattr(jensen_shannon, "_GPU_BLOCK", 9)
    assert [ls.measure(name)(a, b) for name in NAMES] == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("columns", [1, 7, 5000])
@pytest.mark.parametrize("same", [False, True])
def test_mixture_sums(columns, same):
    generator = torch.Generator().manual_seed(columns)
    a, b = (torch.rand(n, columns, generator=generator, dtype=torch.float64) for n in (5, 4))
    a[0, 0] = b[1, 0] = 0.0
    b = a if same else b
    middle = (a[:, None] + b[None]) / 2
    expected = torch.special.xlogy(middle, middle).sum(dim=-1)
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 2e-6)):
        half_a = jensen_shannon.halved(a.to(dtype))
        half_b = half_a if same else jensen_shannon.halved(b.to(dtype))
        found = jensen_shannon.mixture_sums(half_a, half_b)
        torch.testing.assert_close(found, expected, rtol=tolerance, atol=tolerance * columns)
        plain = jensen_shannon.plain_mixture_sums(half_a, half_b)
        torch.testing.assert_close(plain, expected, rtol=tolerance, atol=tolerance * columns)
        own = torch.special.xlogy(a, a).sum(dim=-1)
        torch.testing.assert_close(jensen_shannon.entropies(half_a), own, rtol=tolerance, atol=tolerance * columns)


def test_threads_share_the_entries():
    generator = torch.Generator().manual_seed(0)
    half = jensen_shannon.halved(torch.rand(5, 9000, generator=generator))
    one = jensen_shannon.mixture_sums(half, half)
    try:
        torch.set_num_threads(3)
        for _ in range(2):  # the threads and their buffers are kept
            torch.testing.assert_close(jensen_shannon.mixture_sums(half, half), one, rtol=1e-13, atol=0)
    finally:
        torch.set_num_threads(1)


def test_undefined_is_nan_with_the_reason():
    alone = layer(3, lengths=[1, 1])
    with pytest.warns(LayerscopeWarning, match="row that varies"):
        assert math.isnan(ls.measure("attention_pearson")(alone, alone))
    assert ls.measure("attention_js")(alone, alone) == 1.0
    assert ls.measure("attention_norm")(alone, alone) == 1.0
    with pytest.warns(LayerscopeWarning, match="every row is the same"):
        assert math.isnan(ls.measure("attention_cka")(alone, alone))
    masked = [np.zeros((2, 3, 3))]
    for name in BY_HEAD:
        with pytest.warns(LayerscopeWarning, match="is undefined"):
            assert math.isnan(ls.measure(name)(masked, masked))


def test_wrong_arrays_are_sentences():
    a = layer(2)
    js = ls.measure("attention_js")
    with pytest.raises(InputError, match="9 and 8 sentences"):
        js(a, a[:-1])
    with pytest.raises(InputError, match="Sentence 1 has 4 words in the first argument and 3"):
        js(a, [a[0], a[1][:, :3, :3], *a[2:]])
    with pytest.raises(InputError, match=r"has shape \(4, 4\)"):
        js([a[1][0]], [a[1][0]])
    with pytest.raises(InputError, match="below 0, a NaN"):
        js([a[1] - 1], [a[1]])
    with pytest.raises(InputError, match="1 attention heads and sentence 0 has 2"):
        js([a[1], a[1][:1]], [a[1], a[1]])
    with pytest.raises(InputError, match="no sentences"):
        js([], [])
    with pytest.raises(InputError, match="has no option 'keep'"):
        js(a, a, keep=0.5)
    with pytest.raises(InputError, match="as wholes"):
        ls.measure("attention_cka").heads(a, a)


# Models.

SENTENCES = ["the file is a list", "return", "not an object of that value", "in the list: a, b and c", "this string is"]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(f"{s} {'and ' * (i % 4)}".strip() for i, s in enumerate(SENTENCES * 3)) + "\n")
    return ls.task(path)


def model(family, seed=0, **changes):
    return ls.load(zoo.network(family, "encoder", seed=seed, **changes), tokenizer=zoo.tokenizer(family))


@pytest.mark.parametrize(("first", "second", "causal"), [("bert", "xlnet", False), ("gpt2", "roberta", True)])
def test_models_stream_and_give_what_their_weights_give(first, second, causal, corpus):
    a, b = model(first), model(second, seed=1, **({"num_attention_heads": 2} if second == "roberta" else {}))
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
    sources = [model("bert"), model("gpt2"), model("electra", seed=2)]
    names = ["attention_js", "attention_pwcca"]
    whole = ls.compare(sources, measure=names, task=corpus, names=["b", "g", "e"])
    for i, j in ((0, 1), (1, 1), (0, 2), (2, 1)):
        part = ls.compare(sources[i], sources[j], measure=names, task=corpus)
        for name in names:
            block = whole[name].values[4 * i : 4 * i + 4, 4 * j : 4 * j + 4]
            np.testing.assert_allclose(block, part[name].values, atol=1e-6)


def test_the_size_of_stacks_and_the_order_of_texts_change_nothing(corpus, tmp_path, monkeypatch):
    a, b = model("bert"), model("roberta", seed=1)
    expected = ls.compare(a, b, measure=NAMES, task=corpus)
    backwards = tmp_path / "backwards.txt"
    backwards.write_text("\n".join(reversed((tmp_path / "corpus.txt").read_text().splitlines())) + "\n")
    monkeypatch.setitem(attending._BUDGET, "cpu", 1)
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
    twin = ls.load(permuted(zoo.network("bert", "encoder"), orders), tokenizer=zoo.tokenizer())
    found = ls.compare(model("bert"), twin, measure=name, task=corpus)
    np.testing.assert_allclose(np.diag(found.values), 1.0, atol=1e-5)
    for i, order in enumerate(orders):
        assert found.matches[i, i].tolist() == np.argsort(order).tolist()


def test_special_tokens_and_tokens_on_request(corpus):
    a, b = model("bert"), model("electra", seed=1)
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
    a, b = model("bert"), model("roberta", seed=1)
    found = ls.compare(a, b, measure=["cka", "attention_js", "svcca"], task=corpus, pool="words", keep=0.9)
    assert list(found) == ["cka", "attention_js", "svcca"]
    assert found["cka"].values.shape == (5, 5)
    assert found["attention_js"].values.shape == (4, 4)
    with pytest.raises(InputError, match="does not match attention heads"):
        found["cka"].matches  # noqa: B018


def test_options_of_compare_and_its_mistakes(corpus):
    a = model("bert")
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


def test_saved_loaded_and_drawn(corpus, tmp_path):
    found = ls.compare(model("bert"), model("roberta", num_attention_heads=2), measure="attention_pearson", task=corpus)
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


def test_two_processes_add_up_to_one(corpus, tmp_path):
    folder = zoo.save(tmp_path / "model", "bert")
    names = ["attention_js", "attention_norm", "attention_svcca"]
    expected = ls.compare(folder, task=corpus, measure=names)
    command = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2"]
    command += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
    command += ["-m", "layerscope", "compare", folder, "--task", str(tmp_path / "corpus.txt")]
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
    found = ls.compare(model("bert"), measure=["attention_pearson", "attention_js", "attention_cka"], task=path)
    assert np.isnan(found["attention_pearson"].values).all()
    assert "row that varies" in found["attention_pearson"].reasons[0, 0]
    np.testing.assert_allclose(found["attention_js"].values, 1.0, atol=1e-7)
    assert np.isnan(found["attention_cka"].values).all()
    assert (found["attention_pearson"].matches[0, 1] == -1).all()
    found["attention_pearson"].plot_heads(1, 2, tmp_path / "heads.png")
