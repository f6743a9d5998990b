"""A checkpoint gets its name only when it has been reopened and found equal."""

import sys
import time

import pandas
import pytest
import torch
from transformers import MixtralConfig, MixtralForCausalLM

import layerscope as ls
from benchmarks.memory import LiveBytes, live_bytes
from layerscope.cutting.cut import cut_network
from layerscope.errors import InputError, LayerscopeError, ModelError
from tests.helpers.models import WAYS_TO_OFFLOAD, random_network, save_random, word_tokenizer

DATA = pandas.DataFrame({"text": ["the file", "a list of it", "return this"] * 4, "label": [0, 1, 2] * 4})


@pytest.fixture
def model():
    return ls.load(random_network("bert"), tokenizer=word_tokenizer())


def test_scores_of_these_very_weights_are_on_the_card(model, tmp_path):
    smaller = ls.truncate(model, 2)
    score = ls.evaluate(smaller, DATA)
    card = (ls.save(smaller, tmp_path / "a", scores=score) / "README.md").read_text()
    assert f"| table | all | accuracy | {score:.4f} | 12 |" in card
    card = (ls.save(smaller, tmp_path / "c", scores=[score, score]) / "README.md").read_text()
    assert card.count("| table | all |") == 2
    with torch.no_grad():
        smaller.classifier.bias += 1
    with pytest.raises(InputError, match="is of other weights than those of"):
        ls.save(smaller, tmp_path / "b", scores=score)
    assert not (tmp_path / "b").exists()
    card = (ls.save(smaller, tmp_path / "b") / "README.md").read_text()
    assert "No score of these weights was given" in card


def test_a_tensor_that_is_lost_on_the_way_fails_the_save(model, tmp_path, monkeypatch):
    save = type(model.network).save_pretrained

    def lossy(self, folder, **options):
        return save(self, folder, state_dict={k: v for k, v in self.state_dict().items() if "layer.3" not in k})

    monkeypatch.setattr(type(model.network), "save_pretrained", lossy)
    with pytest.raises(ModelError, match="missing"):
        ls.save(model, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("offload", WAYS_TO_OFFLOAD[2:])
def test_a_network_whose_weights_wait_elsewhere_is_saved_and_compared(offload, tmp_path):
    plain = random_network("llama")
    before = {name: tensor.clone() for name, tensor in plain.state_dict().items()}
    waiting = ls.load(offload(plain, tmp_path / "offloaded"), tokenizer=word_tokenizer())
    saved = ls.load(ls.save(waiting, tmp_path / "saved")).network.state_dict()
    assert all(torch.equal(saved[name], tensor) for name, tensor in before.items() if name in saved)
    assert len(saved) >= len(before) - 1


def test_other_weights_fail_the_save(model, tmp_path, monkeypatch):
    save = type(model.network).save_pretrained

    def wrong(self, folder, **options):
        return save(self, folder, state_dict={k: v + 0.1 for k, v in self.state_dict().items()})

    monkeypatch.setattr(type(model.network), "save_pretrained", wrong)
    with pytest.raises(ModelError, match="reopens with other weights"):
        ls.save(model, tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_layerscope_did_not_save_is_not_overwritten(model, tmp_path):
    original = save_random(tmp_path / "original", "bert")
    with pytest.raises(InputError, match="not overwritten"):
        ls.save(model, original)
    ls.save(model, tmp_path / "mine")
    ls.save(ls.truncate(model, 1), tmp_path / "mine")
    assert ls.load(str(tmp_path / "mine")).depth == 1
    (tmp_path / "file").write_text("x")
    with pytest.raises(LayerscopeError):
        ls.save(model, tmp_path / "file" / "inside")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays(model, dtype, tmp_path):
    smaller = ls.truncate(ls.load(model.network.to(dtype), tokenizer=word_tokenizer()), 2)
    assert smaller.dtype == dtype
    folder = ls.save(smaller, tmp_path / "half")
    assert ls.load(str(folder), dtype=dtype).network.dtype == dtype


def test_pairs_of_types_that_the_model_does_not_have_are_not_fed(tmp_path):
    model = ls.load(random_network("roberta", type_vocab_size=1), tokenizer=word_tokenizer())
    assert ls.load(ls.save(model, tmp_path / "saved")).depth == 4


def test_the_tokenizer_that_is_saved_does_not_depend_on_what_it_read(tmp_path):
    model = ls.load(random_network("bert"), tokenizer=word_tokenizer())
    ls.save(model, tmp_path / "before")
    model.tokenizer(["the file", "a list of value"], truncation=True, max_length=4, padding=True)
    ls.save(model, tmp_path / "after")
    assert (tmp_path / "before" / "tokenizer.json").read_bytes() == (tmp_path / "after" / "tokenizer.json").read_bytes()


def test_the_folder_that_is_read_is_left_as_it_is(tmp_path, monkeypatch):
    """Saved by layerscope, it could be replaced: by the command that reads it, it is not."""
    source = ls.save(ls.truncate(save_random(tmp_path / "base", "bert", labels=3), 3), tmp_path / "model")
    (tmp_path / "link").symlink_to(source)
    monkeypatch.chdir(tmp_path)
    before = {path.name: path.read_bytes() for path in source.iterdir()}
    plan = ls.LayerPlan([1])
    for name, target in (("model", "link"), ("link", "model/../model"), (str(source), "model/small")):
        for act in (
            lambda name, target: ls.cut_folder(name, plan, target),
            lambda name, target: ls.save(ls.cut(name, plan), target),
            lambda name, target: ls.cut_study(name, plan, save=target),
            lambda name, target: ls.cut_study(name, plan, DATA, save=target),
            lambda name, target: ls.heal(name, plan, DATA, out=target, steps=1, distill=True),
            lambda name, target: ls.tune(name, DATA, out=target, max_steps=1),
        ):
            with pytest.raises(InputError, match="the folder of the model that is read"):
                act(name, target)
    assert {path.name: path.read_bytes() for path in source.iterdir()} == before


def test_one_model_is_in_memory_while_it_is_saved_and_reopened(tmp_path):
    """Beside the whole model stands what was cut from it, and nothing else: no drawn, narrowed or reopened weights."""
    sizes = {"num_hidden_layers": 8, "hidden_size": 256, "intermediate_size": 1024}
    random_network("llama", "next", **sizes).to(torch.bfloat16).save_pretrained(tmp_path / "whole")
    word_tokenizer("llama").save_pretrained(tmp_path / "whole")
    before = live_bytes()
    whole = ls.load(tmp_path / "whole", dtype="float32")
    size = live_bytes() - before
    assert size > 30e6
    with LiveBytes() as live:
        smaller = ls.skip(whole, 3, 3)
        ls.save(smaller, tmp_path / "smaller")
    assert 1.8 * size < live.peak - before < 2.1 * size
    del smaller
    with LiveBytes() as live:
        ls.save(whole, tmp_path / "again")
    assert live.peak - before < 1.1 * size


def test_looking_at_all_tensors_disturbs_no_tuple_that_is_being_made():
    """A thread listed all objects meanwhile, and the tuple ended in a SystemError."""
    end = time.monotonic() + 1
    with LiveBytes() as live:
        while time.monotonic() < end:
            held = torch.empty(1 << 20)
            assert len(tuple(k for k in range(500))) == 500
    assert live.peak >= held.nbytes


def test_what_is_cut_is_independent_of_the_whole(model):
    smaller, shared = ls.truncate(model, 2), cut_network(model, ls.LayerPlan([1, 2]), share=True)
    before = smaller.classifier.weight.clone()
    with torch.no_grad():
        model.network.classifier.weight += 1
    assert torch.equal(smaller.classifier.weight, before)
    assert torch.equal(shared.classifier.weight, before + 1)


def test_files_whose_names_transformers_converts_are_opened_and_compared(tmp_path, monkeypatch):
    """Mixtral's experts are one tensor in memory and many in the file."""
    opened = []
    module = sys.modules["layerscope.models.load"]  # the package has a function of that name
    load = module.load
    monkeypatch.setattr(module, "load", lambda *args, **options: opened.append(args) or load(*args, **options))
    config = MixtralConfig(
        vocab_size=200, hidden_size=32, intermediate_size=32, num_hidden_layers=3, num_attention_heads=4,
        num_key_value_heads=2, num_local_experts=4, max_position_embeddings=64,
    )  # fmt: skip
    model = ls.load(MixtralForCausalLM(config).eval(), tokenizer=word_tokenizer("llama"))
    folder = ls.save(ls.skip(model, 2, 2), tmp_path / "smaller")
    assert str(folder.parent) in opened[-1][0]
    assert ls.load(folder).depth == 2


def test_a_tokenizer_with_more_tokens_than_the_model_has_is_a_sentence(tmp_path):
    model = ls.load(random_network("llama"), tokenizer=word_tokenizer())
    model.network.resize_token_embeddings(3)
    with pytest.raises(ModelError, match="and the model has 3 token embeddings; they do not belong together"):
        ls.save(model, tmp_path / "saved")
    assert list(tmp_path.iterdir()) == []
