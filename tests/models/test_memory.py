"""What a model takes on a GPU, by its shape, and what is refused for it."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

import layerscope as ls
from layerscope.errors import InputError
from layerscope.extraction.loop import gpu_tokens
from layerscope.models.architecture import known_architecture
from layerscope.models.load import Model
from layerscope.models.memory import CARDS, HEALING_TOKENS, Footprint, check_training, fitting, takes
from layerscope.tuning.heal import _TOKENS
from tests.helpers.models import language_model, random_network


@pytest.fixture(scope="module")
def large():
    """A Llama of 6.07 billion parameters in bfloat16, on the meta device."""
    config = LlamaConfig(
        hidden_size=4096, intermediate_size=11008, num_hidden_layers=32, num_attention_heads=32,
        num_key_value_heads=8, vocab_size=49152, tie_word_embeddings=False,
    )  # fmt: skip
    with torch.device("meta"):
        network = LlamaForCausalLM._from_config(config, dtype=torch.bfloat16)
    return Model(network, None, known_architecture(config), "large")


def without_a_quarter(shape):
    """The footprint without eight of 32 blocks."""
    return replace(shape, parameters=shape.parameters - 8 * shape.block, depth=24)


def test_the_footprint_of_seven_billion_parameters(large):
    shape = Footprint.of(large)
    assert shape.parameters == pytest.approx(6.07e9, rel=0.01)
    assert shape.weights == 2 * shape.parameters
    taken = takes(large, gpu_tokens(large))
    assert shape.weights < taken["evaluate"] < taken["advise"] < 20e9
    # Plain peft takes 54 GB for the 24 blocks that stay when 20 to 27 go, measured on an H200.
    assert without_a_quarter(shape).lora(HEALING_TOKENS) == pytest.approx(54e9, rel=0.15)
    assert (
        taken["heal with LoRA and checkpointing"]
        < taken["heal with LoRA"] / 2
        < taken["tune all weights with checkpointing"]
    )
    assert fitting(taken, 24) == ["evaluate", "advise"]
    assert "heal with LoRA and checkpointing" in fitting(taken, 48)
    assert set(fitting(taken, 48)) <= set(fitting(taken, 80)) < set(taken)


def test_the_table_in_the_documentation_is_this_models(large):
    page = (Path(__file__).parents[2] / "docs" / "howto" / "cut.md").read_text()
    table = page.partition("## On a GPU of 24, 48 or 80 GB")[2].partition("\n\n|")[2].partition("\n\n")[0]
    rows = [[cell.strip() for cell in row.strip("| ").split("|")] for row in f"|{table}".splitlines()[2:]]
    taken = takes(large, gpu_tokens(large))
    assert [row[0] for row in rows] == list(taken)
    for what, size, *cards in rows:
        assert size == f"{taken[what] / 1e9:.0f}"
        expected = ["yes" if what in fitting(taken, card) else "no" for card in CARDS]
        assert what == "weights" or cards == expected
    smaller = without_a_quarter(Footprint.of(large))
    sizes = [round(smaller.lora(HEALING_TOKENS, checkpointing=each) / 1e9) for each in (False, True)]
    assert "LoRA takes {} GB, which fits on a card of 80, and with `--checkpointing` {}.".format(*sizes) in page


def test_healing_is_meant_as_it_is_done_by_default():
    assert _TOKENS["batch"] * _TOKENS["max_length"] == HEALING_TOKENS


def test_an_encoder_has_no_logits_at_every_token_and_is_not_healed_as_a_language_model():
    model = ls.load(random_network("bert"))
    assert Footprint.of(model).logits == 0
    assert list(takes(model, 4096)) == ["weights", "evaluate", "advise", "tune all weights with checkpointing"]


@pytest.mark.parametrize(("free", "fits"), [(1e6, False), (1e10, True)])
def test_a_training_that_a_gpu_has_no_room_for_is_refused_before_it(free, fits, monkeypatch):
    model = language_model()
    monkeypatch.setattr(Model, "device", torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (free, free))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda _: 0)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda _: 0)
    taken = Footprint.of(model).lora(HEALING_TOKENS)
    if fits:
        check_training(model, taken, "less")
    else:
        with pytest.raises(InputError, match=r"Training .* takes about .* cuda has 0 GB free; less\."):
            check_training(model, taken, "less")


def test_on_a_cpu_nothing_is_refused():
    assert check_training(language_model(), 10**18, "less") is None
