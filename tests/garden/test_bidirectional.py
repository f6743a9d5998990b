"""Two language models over words: each predicts from its own side only, and what is saved opens as an ELMo."""

import json
import math

import layerscope_garden
import numpy as np
import pretrain
import pytest
import torch
import yaml
from nursery import cards
from nursery.bidirectional import Bidirectional
from nursery.recipes import FOLDER, Recipe
from torch._dynamo.testing import CompileCounterWithBackend

import layerscope as ls
from layerscope.models.elmo import Elmo, ElmoOptions, word_characters

CHARACTERS = {
    "activation": "relu", "filters": [[1, 4], [2, 4]], "n_highway": 1, "embedding": {"dim": 4},
    "max_characters_per_token": 10,
}  # fmt: skip
LSTM = {"projection_dim": 8, "dim": 16, "n_layers": 2, "cell_clip": 3, "proj_clip": 3}
VOCABULARY = 30


def objective(**changes):
    torch.manual_seed(0)
    options = {"char_cnn": CHARACTERS, "lstm": LSTM | changes}
    characters = torch.tensor([word_characters(chr(97 + k) * 3, 10) for k in range(20)], dtype=torch.int16)
    network = Elmo(ElmoOptions.model_validate(options))
    return Bidirectional(network, characters, torch.arange(20, dtype=torch.int16) + 5, VOCABULARY).eval()


@pytest.mark.parametrize("heads", [None, 2])
def test_the_losses_are_those_of_a_plain_computation(heads):
    made = objective(attention_heads=heads)
    numbers = torch.randint(20, (3, 6), generator=torch.Generator().manual_seed(0))
    with torch.inference_mode():
        losses = made(made.prepare(numbers, None))
        ids = torch.stack(
            [torch.stack([made.marks[0], *made.characters[row].long(), made.marks[1]]) for row in numbers]
        )
        states = made.network(ids, torch.ones(3, 8))[-1]
        wrong = {"forward": [], "backward": []}
        for text in range(3):
            for place in range(6):
                label = int(numbers[text, place]) + 5
                for name, state in (("forward", states[text, place, :8]), ("backward", states[text, place + 2, 8:])):
                    wrong[name].append(-float(made.output(state).log_softmax(-1)[label]))
    for name, values in wrong.items():
        assert float(losses[name]) == pytest.approx(np.mean(values), abs=1e-5)
    assert float(losses["loss"]) == pytest.approx(np.mean([*wrong["forward"], *wrong["backward"]]), abs=1e-5)


@pytest.mark.parametrize("heads", [None, 2])
def test_no_direction_sees_what_it_predicts(heads):
    """Another word in a place changes neither prediction of that place."""
    made = objective(attention_heads=heads)
    first = torch.tensor([[1, 2, 3, 4]])
    other = torch.tensor([[1, 2, 9, 4]])
    with torch.inference_mode():
        (a, b), (c, d) = (made.states(made.prepare(numbers, None)).chunk(2, dim=-1) for numbers in (first, other))
    torch.testing.assert_close(a[:, 2], c[:, 2])  # what predicts the third word from the left
    torch.testing.assert_close(b[:, 4], d[:, 4])  # and from the right
    assert (a[:, 3] - c[:, 3]).abs().max() > 1e-4


@pytest.mark.parametrize("family", [pytest.param("elmo", marks=pytest.mark.slow), "elmo-transformer"])
def test_it_learns_is_saved_and_opens(family, shard, tokenizer_folder, tmp_path):
    recipe = yaml.safe_load((FOLDER / f"{family}.yaml").read_text(encoding="utf-8"))
    heads = {"attention_heads": 2} if family == "elmo-transformer" else {}
    recipe["config"] = {"char_cnn": CHARACTERS, "lstm": LSTM | heads}
    recipe |= {"name": family, "length": 18, "batch": 16, "learning_rate": 2e-2}
    path, out = tmp_path / f"{family}.yaml", tmp_path / f"{family}-s0"
    path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
    places = ["--tokenizer", str(tokenizer_folder), "--cache", str(tmp_path / "cache"), "--workers", "1"]
    pretrain.main(["train", str(path), str(shard), *places, "--out", str(out), "--device", "cpu", "--steps", "30"])
    card = cards.read(out)
    assert card["held_out"]["loss"] < math.log(160) - 1
    assert card["objective"] == "bidirectional"
    page = (out / "README.md").read_text(encoding="utf-8")
    assert f"| held-out perplexity | forward {math.exp(card['held_out']['forward']):.1f}, backward" in page
    model = ls.load(str(out))
    assert (model.depth, model.width) == (2, 16)
    assert json.loads((out / "options.json").read_text())["lstm"]["dim"] == 16
    assert not (out / "checkpoint").exists()


@pytest.mark.slow
@pytest.mark.parametrize("heads", [None, 2])
def test_a_compiled_step_gives_the_same_and_stays_one_whatever_the_number_of_words(heads):
    made = objective(attention_heads=heads, cell_clip=None, proj_clip=None)
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(made, dynamic=False, backend=counter)
    texts = torch.tensor([[1, 2, 3, 4], [5, 6, 7, 8]]), torch.tensor([[1, 1, 2, 2], [3, 3, 1, 2]])
    frames = []
    for numbers in texts:
        batch = made.prepare(numbers, None)
        assert float(compiled(batch)["loss"].detach()) == pytest.approx(float(made(batch)["loss"].detach()), abs=1e-6)
        frames.append(counter.frame_count)
    assert frames[0] == frames[1] > 0


def test_the_recipes_run_on_torchs_own_kernel():
    for name in ("elmo", "elmo4"):
        network = Elmo(ElmoOptions.model_validate(Recipe.read(name).config))
        assert all(layer.forwards.fused for layer in network.layers)


def test_the_recipes_are_as_wide_as_the_other_models():
    for name, depth in (("elmo", 2), ("elmo4", 4), ("elmo-transformer", 6)):
        options = ElmoOptions.model_validate(Recipe.read(name).config)
        assert (options.width, options.lstm.n_layers) == (128, depth)


def test_the_gardens_elmos_open_and_the_garden_stays_small():
    files = [path for path in layerscope_garden.folder().rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 80e6
    for name, depth in (("elmo-s0", 2), ("elmo4-s0", 4), ("elmo-transformer-s0", 6)):
        card, model = layerscope_garden.card(name), ls.load(f"garden:{name}")
        assert (model.depth, model.width) == (depth, 128)
        assert sum(p.numel() for p in model.module.parameters()) == card["parameters"]
        assert all(math.exp(card["held_out"][side]) < 716 for side in ("forward", "backward"))  # of single words alone
