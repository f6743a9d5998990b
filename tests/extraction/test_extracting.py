"""Extraction against the plain way: one text at a time, no padding, transformers' own hidden states."""

import functools

import numpy as np
import pandas
import pytest
import torch
import zoo

import layerscope as ls
from layerscope.errors import DataError, InputError
from layerscope.models.replay import caches_off

FAMILIES = zoo.FAMILIES


def model_of(family, kind="encoder", **options):
    return ls.load(zoo.network(family, kind, **options), tokenizer=zoo.tokenizer(family))


@torch.inference_mode()
def plain(model, texts, pairs=None, max_length=128):
    """Per text: (hidden states as (L+1, t, d), special tokens mask)."""
    found = []
    for i, text in enumerate(texts):
        pair = None if pairs is None else pairs[i]
        batch = model.tokenizer(
            text, pair, truncation=True, max_length=max_length, return_tensors="pt", return_special_tokens_mask=True
        )
        special = batch.pop("special_tokens_mask")[0].bool()
        if model.anatomy.family == "distilbert":
            batch.pop("token_type_ids")
        raw = []
        last = model.network.base_model.get_submodule(model.anatomy.blocks)[-1]
        hook = last.register_forward_hook(lambda m, a, out, raw=raw: raw.append(out))
        with caches_off(model.network):
            hidden = list(model.network.base_model(**batch, output_hidden_states=True).hidden_states)
        hook.remove()
        if model.anatomy.final_norm:  # layer L is the raw output of the last block
            hidden[-1] = raw[-1]
        found.append((torch.stack([h[0] for h in hidden]), special))
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_every_pool_of_every_family_is_what_the_plain_way_gives(family, task):
    model = model_of(family)
    expected = plain(model, task.split().texts)
    first = model.anatomy.summary == "first"
    reps = {p: ls.extract(model, task, pool=p, store=False) for p in ("cls", "mean", "last", "tokens")}
    for layer in range(model.depth + 1):
        want = {
            "cls": [h[layer][0 if first else -1] for h, _ in expected],
            "last": [h[layer][-1] for h, _ in expected],
            "mean": [h[layer][~s].mean(0) for h, s in expected],
            "tokens": [row for h, s in expected for row in h[layer][~s]],
        }
        for pool, rows in want.items():
            torch.testing.assert_close(
                reps[pool][layer], torch.stack(rows), rtol=1e-4, atol=1e-5, msg=f"{pool} {layer}"
            )
    assert reps["cls"].layers == list(range(model.depth + 1))
    assert reps["cls"][0].dtype == torch.float32
    assert reps["cls"].labels.tolist() == task.split().labels.tolist()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pool", ["cls", "mean", "words"])
def test_batches_order_and_padding_side_change_nothing(family, pool, task, corpus):
    model = model_of(family)
    data = corpus if pool == "words" else task
    reference = ls.extract(model, data, pool=pool, store=False, batch_tokens=10**6)
    for side, tokens in (("right", 1), ("left", 10**6), ("left", 40)):
        model.tokenizer.padding_side = side
        other = ls.extract(model, data, pool=pool, store=False, batch_tokens=tokens)
        assert other.rows.difference(reference.rows) is None
        for layer in reference.layers:
            torch.testing.assert_close(other[layer], reference[layer], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_final_norm_gives_the_last_hidden_state_of_transformers(family, task):
    model = model_of(family)
    reps = ls.extract(model, task, pool="last", store=False, final_norm=True)
    with torch.inference_mode(), caches_off(model.network):
        for i, text in enumerate(task.split().texts):
            batch = model.tokenizer(text, return_tensors="pt")
            if family == "distilbert":
                batch.pop("token_type_ids")
            expected = model.network(**batch).last_hidden_state[0, -1]
            torch.testing.assert_close(reps[model.depth][i], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_some_layers_are_the_same_as_all_of_them(family, task):
    model = model_of(family)
    every, some = (ls.extract(model, task, store=False, layers=chosen) for chosen in (None, [2, 0]))
    assert some.layers == [0, 2]
    for layer in (0, 2):
        torch.testing.assert_close(some[layer], every[layer])
    # Leaving early must leave the network as it was.
    torch.testing.assert_close(ls.extract(model, task, store=False)[4], every[4])


@pytest.mark.parametrize("family", ["bert", "xlnet", "gpt2"])
def test_pairs_are_read_as_pairs(family):
    frame = pandas.DataFrame({"sentence1": ["the file", "a list"], "sentence2": ["is a value", "of the object"]})
    model = model_of(family)
    reps = ls.extract(model, frame, pool="mean", store=False)
    expected = plain(model, frame["sentence1"], frame["sentence2"])
    torch.testing.assert_close(reps[3], torch.stack([h[3][~s].mean(0) for h, s in expected]), rtol=1e-4, atol=1e-5)


def test_multiple_choice_gives_a_row_a_choice():
    frame = pandas.DataFrame(
        {
            "text": ["the file", "a list"],
            "endings": [["is a", "is not an object", "."], ["of", "in the"]],
            "label": [2, 0],
        }
    )
    task = ls.task(frame, text="text", choices="endings")
    model = model_of("bert")
    reps = ls.extract(model, task, store=False)
    assert reps.rows.row.tolist() == [0, 0, 0, 1, 1]
    assert reps.rows.choice.tolist() == [0, 1, 2, 0, 1]
    assert reps.labels.tolist() == [2, 2, 2, 0, 0]
    first = ["the file"] * 3 + ["a list"] * 2
    expected = plain(model, first, [c for row in frame["endings"] for c in row])
    torch.testing.assert_close(reps[4], torch.stack([h[4][0] for h, _ in expected]), rtol=1e-4, atol=1e-5)


def test_special_tokens_are_kept_on_request(task):
    model = model_of("bert")
    reps = ls.extract(model, task, pool="mean", special=True, store=False)
    expected = plain(model, task.split().texts)
    torch.testing.assert_close(reps[2], torch.stack([h[2].mean(0) for h, _ in expected]), rtol=1e-4, atol=1e-5)


def test_long_texts_are_cut_and_counted(task):
    reps = ls.extract(model_of("bert"), task, pool="tokens", max_length=8, store=False)
    assert reps.info["truncated"] == 3
    assert pandas.Series(reps.rows.row).value_counts().max() == 6


def test_the_models_own_limit_is_kept(task):
    reps = ls.extract(model_of("bert", max_position_embeddings=10), task, pool="tokens", store=False)
    assert pandas.Series(reps.rows.row).value_counts().max() == 8


def test_the_summary_token_of_layer_0_is_one_vector(task):
    reps = ls.extract(model_of("bert"), task, store=False)
    assert reps.summary().frame["spread"][0] == pytest.approx(0, abs=1e-6)
    assert np.isnan(reps.summary().frame["top_direction"][0])
    assert reps.summary().frame["spread"][1] > 1e-3


def test_out_of_memory_halves_the_batch_and_goes_on(task, monkeypatch, caplog):
    model = model_of("bert")
    expected = ls.extract(model, task, store=False)
    sizes = []
    original = model.network.forward

    @functools.wraps(original)
    def scarce(input_ids, **kwargs):
        sizes.append(input_ids.numel())
        if input_ids.numel() > 90:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(input_ids=input_ids, **kwargs)

    monkeypatch.setattr(model.network, "forward", scarce)
    reps = ls.extract(model, task, store=False)
    assert max(sizes) > 90
    assert "going on with" in caplog.text
    for layer in reps.layers:
        torch.testing.assert_close(reps[layer], expected[layer], rtol=1e-4, atol=1e-5)

    monkeypatch.setattr(model.network, "forward", lambda **_: (_ for _ in ()).throw(torch.OutOfMemoryError("no")))
    with pytest.raises(InputError, match=r"single text of .* tokens does not fit"):
        ls.extract(model, task, store=False)


def test_other_runtime_errors_are_not_taken_for_memory(task, monkeypatch):
    model = model_of("bert")
    monkeypatch.setattr(
        model.network.embeddings, "forward", lambda *a, **k: (_ for _ in ()).throw(RuntimeError("boom"))
    )
    with pytest.raises(RuntimeError, match="boom"):
        ls.extract(model, task, store=False)


def test_states_that_are_not_finite_are_refused_with_their_place(task):
    model = model_of("bert")
    with torch.no_grad():
        model.network.encoder.layer[1].output.dense.bias[3] = float("inf")
    with pytest.raises(DataError, match=r"Layer 2 .* is not finite for row"):
        ls.extract(model, task, store=False)


def test_a_tokenizer_that_is_not_the_models_is_refused(task):
    net = zoo.network("bert", "encoder", vocab_size=20)
    with pytest.raises(InputError, match="20 token embeddings; they do not belong together"):
        ls.extract(ls.load(net, tokenizer=zoo.tokenizer()), task, store=False)


def test_a_text_without_tokens_is_refused_with_its_row():
    frame = pandas.DataFrame({"text": ["a b", "\u200b\u200b"]})
    with pytest.raises(DataError, match=r"Row 1 of table .* no token but special ones"):
        ls.extract(model_of("bert"), frame, pool="mean", store=False)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"pool": "max"}, "no pool 'max'; allowed: cls, mean"),
        ({"pool": "means"}, "Did you mean 'mean'"),
        ({"subword": "middle"}, "no sub-word choice"),
        ({"layers": [9]}, r"does not have: 9; it has 0\.\.4"),
        ({"layers": []}, "none"),
        ({"limit": 0}, "limit is 0"),
        ({"limit": 1.5}, "limit is 1.5"),
        ({"layers": 3}, "a list of whole numbers is needed"),
        ({"layers": [1.5]}, "a list of whole numbers is needed"),
        ({"max_length": 2}, "max_length is 2"),
        ({"batch_tokens": 0}, "batch_tokens is 0"),
        ({"autocast": "int8"}, "no autocast type"),
        ({"pool": "words"}, "needs text that is split into words"),
        ({"split": "test"}, "no split 'test'; it has all"),
    ],
)
def test_wrong_options_are_explained(options, sentence, task):
    with pytest.raises(InputError, match=sentence):
        ls.extract(model_of("bert"), task, store=False, **options)


def test_autocast_computes_in_half_precision_and_returns_float32(task):
    model = model_of("bert")
    exact, half = (ls.extract(model, task, store=False, autocast=a) for a in (None, "bfloat16"))
    assert half[4].dtype == torch.float32
    error = (half[4] - exact[4]).abs().max()
    assert 0 < error < 0.3


def test_training_mode_and_settings_are_restored(task):
    model = model_of("bert")
    model.network.train()
    one = ls.extract(model, task, store=False)
    assert model.network.training
    torch.testing.assert_close(ls.extract(model, task, store=False)[4], one[4])  # no dropout in between


def test_a_bare_network_is_a_model_too(task):
    net = zoo.network("bert", "encoder")
    reps = ls.extract(net, task, tokenizer=zoo.tokenizer(), store=False)
    torch.testing.assert_close(reps[4], ls.extract(model_of("bert"), task, store=False)[4])


def test_several_models_stream_over_the_same_batches(task):
    models = [model_of("bert"), model_of("roberta")]
    seen = []

    class Listener:
        def update(self, batch):
            assert [len(states) for states in batch.states] == [5, 5]
            seen.append((batch.rows.row, batch.states[0][4].clone(), batch.states[1][4].clone()))

    tally = ls.stream(models, task.split(), Listener(), pool="mean", batch_tokens=60)
    assert tally.rows == 7
    assert len(seen) > 1
    order = np.argsort(np.concatenate([rows for rows, _, _ in seen]))
    for place, model in enumerate(models, start=1):
        got = torch.cat([part[place] for part in seen])[torch.from_numpy(order)]
        expected = ls.extract(model, task, pool="mean", store=False)[4]
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
