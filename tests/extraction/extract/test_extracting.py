"""Extraction against the plain way: one text at a time, no padding, transformers' own hidden states."""

import pandas
import pytest
import torch

import layerscope as ls
from layerscope.errors import DataError, InputError
from layerscope.models.replay import caches_off
from tests.helpers.models import FAMILIES, random_model, random_network, word_tokenizer


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
        if model.architecture.family == "distilbert":
            batch.pop("token_type_ids")
        raw = []
        last = model.network.base_model.get_submodule(model.architecture.blocks)[-1]
        hook = last.register_forward_hook(lambda m, a, out, raw=raw: raw.append(out))
        with caches_off(model.network):
            hidden = list(model.network.base_model(**batch, output_hidden_states=True).hidden_states)
        hook.remove()
        if model.architecture.final_norm:  # layer L is the raw output of the last block
            hidden[-1] = raw[-1]
        found.append((torch.stack([h[0] for h in hidden]), special))
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_every_pool_of_every_family_is_what_the_plain_way_gives(family, task):
    model = random_model(family)
    expected = plain(model, task.split().texts)
    first = model.architecture.summary == "first"
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


@pytest.mark.parametrize("family", ["bert", "xlnet", "gpt2"])
def test_pairs_are_read_as_pairs(family):
    frame = pandas.DataFrame({"sentence1": ["the file", "a list"], "sentence2": ["is a value", "of the object"]})
    model = random_model(family)
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
    model = random_model("bert")
    reps = ls.extract(model, task, store=False)
    assert reps.rows.row.tolist() == [0, 0, 0, 1, 1]
    assert reps.rows.choice.tolist() == [0, 1, 2, 0, 1]
    assert reps.labels.tolist() == [2, 2, 2, 0, 0]
    first = ["the file"] * 3 + ["a list"] * 2
    expected = plain(model, first, [c for row in frame["endings"] for c in row])
    torch.testing.assert_close(reps[4], torch.stack([h[4][0] for h, _ in expected]), rtol=1e-4, atol=1e-5)


def test_special_tokens_are_kept_on_request(task):
    model = random_model("bert")
    reps = ls.extract(model, task, pool="mean", special=True, store=False)
    expected = plain(model, task.split().texts)
    torch.testing.assert_close(reps[2], torch.stack([h[2].mean(0) for h, _ in expected]), rtol=1e-4, atol=1e-5)


def test_long_texts_are_cut_and_counted(task):
    reps = ls.extract(random_model("bert"), task, pool="tokens", max_length=8, store=False)
    assert reps.info["truncated"] == 3
    assert pandas.Series(reps.rows.row).value_counts().max() == 6


def test_the_models_own_limit_is_kept(task):
    reps = ls.extract(random_model("bert", max_position_embeddings=10), task, pool="tokens", store=False)
    assert pandas.Series(reps.rows.row).value_counts().max() == 8


def test_a_tokenizer_that_is_not_the_models_is_refused(task):
    net = random_network("bert", "encoder", vocab_size=20)
    with pytest.raises(InputError, match="20 token embeddings; they do not belong together"):
        ls.extract(ls.load(net, tokenizer=word_tokenizer()), task, store=False)


def test_a_text_without_tokens_is_refused_with_its_row():
    frame = pandas.DataFrame({"text": ["a b", "\u200b\u200b"]})
    with pytest.raises(DataError, match=r"finds only special tokens .* in row 2 of table \(all\)"):
        ls.extract(random_model("bert"), frame, pool="mean", store=False)


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
        ({"layers": 3}, "layers is 3; it must be a list of whole numbers or None"),
        ({"layers": [1.5]}, r"layers is \[1\.5\]; it must be a list of whole numbers or None"),
        ({"max_length": 2}, "max_length is 2"),
        ({"batch_tokens": 0}, "batch_tokens is 0"),
        ({"autocast": "int8"}, "no autocast type"),
        ({"split": "test"}, "no split 'test'; it has all"),
    ],
)
def test_wrong_options_are_explained(options, sentence, task):
    with pytest.raises(InputError, match=sentence):
        ls.extract(random_model("bert"), task, store=False, **options)


def test_a_bare_network_is_a_model_too(task):
    net = random_network("bert", "encoder")
    reps = ls.extract(net, task, tokenizer=word_tokenizer(), store=False)
    torch.testing.assert_close(reps[4], ls.extract(random_model("bert"), task, store=False)[4])


def test_words_of_any_text_column():
    import pandas

    from layerscope.errors import DataError

    texts = ["the file, and the list", "a value"]
    frame = pandas.DataFrame({"text": texts, "label": [0, 1]})
    model = ls.load(random_network("bert"), tokenizer=word_tokenizer())
    reps = ls.extract(model, frame, pool="words")
    assert reps.rows.row.tolist() == [0] * 5 + [1] * 2
    assert reps.info["data"]["words_by"] == "whitespace"
    apart = ls.extract(model, ls.task(frame, words_by=r"\w+|[^\w\s]"), pool="words")
    assert len(apart) == 8
    assert apart.info["data"]["words_by"] == r"\w+|[^\w\s]"
    lists = frame.assign(text=[text.split() for text in texts])
    torch.testing.assert_close(ls.extract(model, lists, pool="words")[2], reps[2])
    compared = ls.compare(model, measure="attention_js", task=frame)
    assert compared.provenance["data"]["words_by"] == "whitespace"
    with pytest.raises(InputError, match=r"'\(', which is not a regular expression"):
        ls.task(frame, words_by="(")
    with pytest.raises(DataError, match=r"1 of 2 texts have no word by ',', such as row 2 of table"):
        ls.extract(model, ls.task(frame, words_by=","), pool="words")


def attended(model, task):
    return ls.compare(model, task=task, measure="attention_js")


def in_words(model, task):
    return ls.extract(model, task, pool="words")


@pytest.mark.parametrize("ask", [in_words, attended])
def test_words_of_pairs_are_refused_before_a_model_is_run(ask, monkeypatch):
    import pandas

    frame = pandas.DataFrame({"text": ["the file", "a list"], "text_pair": ["a", "the"], "label": [0, 1]})
    model = ls.load(random_network("bert"), tokenizer=word_tokenizer())
    monkeypatch.setattr(type(model.network), "forward", None)
    with pytest.raises(InputError, match=r"has two texts; name one column .*--text.*tokens, mean, cls"):
        ask(model, frame)


@pytest.mark.parametrize("damage", ["shard", "tally", "no tally"])
def test_what_an_earlier_try_left_is_verified_before_it_is_used(damage, task, monkeypatch, home, caplog):
    import sys

    from layerscope.store import Store

    module = sys.modules["layerscope.extraction.extract"]
    monkeypatch.setattr(module.Extraction, "_texts_per_shard", 2)
    model = ls.load(random_network("bert", "encoder"), tokenizer=word_tokenizer())
    expected = ls.extract(model, task, store=False)

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_card", stop)
        with pytest.raises(KeyboardInterrupt):
            ls.extract(model, task)
    (folder,) = (home / "unfinished" / "representations").iterdir()
    if damage == "shard":
        shard = folder / "shard-00001.safetensors"
        content = bytearray(shard.read_bytes())
        content[-200] ^= 255
        shard.write_bytes(bytes(content))
    elif damage == "tally":
        (folder / "tally-00001.json").write_text("")
    else:
        (folder / "tally-00001.json").write_text("[1]")
    found = ls.extract(model, task)
    for layer in found.layers:
        torch.testing.assert_close(found[layer], expected[layer])
    assert ("damaged" in caplog.text) == (damage == "shard")
    (done,) = Store().entries()
    assert done.fault() is None
    assert not list(done.path.glob(".*"))
