"""Every family learns, is saved as a standard checkpoint, and goes on where it was stopped."""

import json
import shutil
from argparse import Namespace

import pytest
import torch
from nursery import cards
from nursery.loop import Length, Trainer, rate
from nursery.running import command, read_log
from safetensors.torch import load_file

import layerscope as ls
from tests.helpers.data import GARDEN_SIZES


@pytest.mark.parametrize("family", sorted(GARDEN_SIZES))
def test_the_loss_falls_and_the_checkpoint_opens(family, trained):
    folder = trained(family, f"{family}-s0", "--steps", "60", "--every", "0.5")
    noted = [line for line in read_log(folder) if "held_out_loss" in line]
    card = cards.read(folder)
    first = 50 * 0.69 if family == "electra" else 4.9  # about what guessing gives: log(160), and log(2) times 50
    assert card["held_out"]["loss"] < first - 0.5
    assert noted[-1]["held_out_loss"] == card["held_out"]["loss"]
    model = ls.load(str(folder))
    weights = load_file(folder / "model.safetensors")
    assert all(tensor.dtype == torch.float16 for tensor in weights.values())
    saved = {k.removeprefix(f"{_prefix(weights)}."): v.float() for k, v in weights.items()}
    assert model.has_head  # the one that it was pre-trained with
    body = {k: v for k, v in model.network.base_model.state_dict().items() if "pooler" not in k}
    assert all(torch.equal(tensor, saved[name]) for name, tensor in body.items())
    assert model.depth == 2
    assert not (folder / "checkpoint").exists()
    assert not (folder / "first").exists()


def _prefix(weights):
    return next(iter(sorted(k.split(".")[0] for k in weights if "embeddings" in k or k.startswith("transformer"))))


@pytest.mark.parametrize(("family", "at"), [("bert", 7), ("electra", 2), ("electra", 9)])
def test_a_resumed_run_equals_an_uninterrupted_one(family, at, trained, monkeypatch):
    """Electra learns masked tokens in its first four steps: it is stopped within them, and after them."""
    whole = trained(family, f"{family}-{at}-whole", "--steps", "12")
    advance, done = Trainer.advance, []

    def stopped(self):
        if len(done) == at:
            self._save()
            raise KeyboardInterrupt
        done.append(self.recipe.objective)
        return advance(self)

    monkeypatch.setattr(Trainer, "advance", stopped)
    with pytest.raises(KeyboardInterrupt):
        trained(family, f"{family}-{at}-halves", "--steps", "12")
    monkeypatch.setattr(Trainer, "advance", advance)
    halves = trained(family, f"{family}-{at}-halves", "--steps", "12")
    expected, found = (load_file(folder / "model.safetensors") for folder in (whole, halves))
    assert all(torch.equal(found[name], expected[name]) for name in expected)
    assert cards.read(halves)["held_out"] == cards.read(whole)["held_out"]
    assert cards.read(halves)["steps"] == 12
    assert done.count("masked") == {("bert", 7): 7, ("electra", 2): 2, ("electra", 9): 5}[family, at]


def test_a_run_that_is_cut_off_leaves_a_model(trained, monkeypatch):
    """With each checkpoint the model is written as it is; its card has another name until the end."""
    advance = Trainer.advance

    def stopped(self):
        if self.step == 5:
            raise KeyboardInterrupt
        return advance(self)

    monkeypatch.setattr(Trainer, "advance", stopped)
    with pytest.raises(KeyboardInterrupt):
        trained("bert", "bert-cut", "--steps", "12", "--every", "0")
    monkeypatch.setattr(Trainer, "advance", advance)
    folder = trained("bert", "bert-whole", "--steps", "12", "--every", "0")
    assert not (folder / cards.UNFINISHED).exists()
    cut = folder.with_name("bert-cut")
    card = json.loads((cut / cards.UNFINISHED).read_text(encoding="utf-8"))
    assert (card["steps"], card["held_out"]["loss"]) == (5, card["history"][-1]["loss"])
    assert (card["share"], cards.read(folder)["share"]) == (round(5 / 12, 4), 1.0)
    page, whole = ((path / cards.PAGE).read_text(encoding="utf-8") for path in (cut, folder))
    assert "of which 42% was run" in page
    assert "That run was stopped after 42% of its time" in page
    assert "straight down to 0" in whole
    assert "stopped" not in whole
    assert not (cut / cards.CARD).exists()
    assert ls.load(str(cut)).depth == 2
    assert load_file(cut / "model.safetensors").keys() == load_file(folder / "model.safetensors").keys()


def test_detection_goes_on_from_what_masked_tokens_taught(trained, monkeypatch):
    advance, blocks = Trainer.advance, {}

    def watched(self):
        weight = self.objective.network.electra.encoder.layer[0].output.dense.weight
        if self.recipe.objective == "replaced":
            blocks.setdefault("begun", weight.detach().clone())
            return advance(self)
        loss = advance(self)
        blocks["taught"] = weight.detach().clone()
        return loss

    monkeypatch.setattr(Trainer, "advance", watched)
    folder = trained("electra", "electra-two", "--steps", "10")
    assert torch.equal(blocks["begun"], blocks["taught"])
    card = cards.read(folder)
    assert (card["steps"], card["masked_steps"]) == (10, 4)
    assert "tokens, the first 4 on masked tokens |" in cards.page(card)
    assert (folder / "first-log.jsonl").is_file()
    assert not (folder / "first").exists()


def test_seeds_differ_and_the_same_seed_does_not(trained):
    first, again, other = (
        load_file(trained("bert", name, "--steps", "3", "--seed", seed) / "model.safetensors")
        for name, seed in (("a", "1"), ("b", "1"), ("c", "2"))
    )
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(
        first["bert.encoder.layer.0.output.dense.weight"], other["bert.encoder.layer.0.output.dense.weight"]
    )


def test_what_is_finished_is_not_trained_again(trained, capsys, monkeypatch):
    folder = trained("bert", "finished", "--steps", "2")
    before = (folder / "model.safetensors").stat().st_mtime_ns
    monkeypatch.setattr(Trainer, "advance", None)
    trained("bert", "finished", "--steps", "2")
    assert "is finished" in capsys.readouterr().out
    assert (folder / "model.safetensors").stat().st_mtime_ns == before


def test_a_schedule_by_time_ends_in_time_with_a_rate_near_zero(trained, monkeypatch):
    rates = []
    advance = Trainer.advance

    def watched(self):
        loss = advance(self)
        rates.append(self.optimizer.param_groups[0]["lr"])
        return loss

    monkeypatch.setattr(Trainer, "advance", watched)
    card = cards.read(trained("bert", "timed", "--minutes", "0.03"))
    assert card["steps"] == len(rates) > 3
    assert max(rates) > 0.003
    assert rates[-1] < 0.001


def test_the_rate_rises_over_the_warm_up_and_falls_to_zero():
    assert [rate(share, 2.0, 0.25) for share in (0.0, 0.125, 0.25, 0.625, 1.0)] == [0.0, 1.0, 2.0, 1.0, 0.0]
    assert Length(steps=10).share(5, 99.0) == 0.5
    assert Length(seconds=10.0).share(5, 2.5) == 0.25
    assert Length(seconds=10.0).share(5, 11.0) == 1.0


@pytest.mark.slow
def test_the_step_really_compiles(trained):
    plain = cards.read(trained("bert", "plain", "--steps", "2"))
    compiled = cards.read(trained("bert", "compiled", "--steps", "2", "--compile"))
    assert compiled["held_out"]["loss"] == pytest.approx(plain["held_out"]["loss"], abs=1e-3)


def test_the_card_is_complete(trained):
    folder = trained("bert", "bert-s3", "--steps", "2", "--seed", "3")
    page = (folder / "README.md").read_text(encoding="utf-8")
    card = cards.read(folder)
    assert card["tokens"] == 2 * 16 * 24
    assert card["seed"] == 3
    for fact in (
        "masked language modelling",
        "animals.txt",
        f"{card['tokens']:,}",
        "held-out loss",
        "Seeds of one recipe",
        "garden/pretrain.py train",
        "--seed 3 --steps 2",
    ):
        assert fact in page
    scored = card | {"scores": {"sst2": {"seeds": {"0": 0.8, "1": 0.9}, "random": 0.55, "majority": 0.5}}}
    assert "| sst2 | 0.850 | 0.800, 0.900 | 0.550 | 0.500 |" in cards.page(scored)
    assert json.loads((folder / "config.json").read_text())["hidden_dropout_prob"] == 0.1


def test_the_command_names_no_folder_of_this_machine(tmp_path):
    options = Namespace(
        recipe="bert",
        shards=[tmp_path / "a.xz"],
        seed=1,
        steps=None,
        minutes=5.0,
        batch=64,
        out=tmp_path / "x",
        compile=False,
    )
    assert str(tmp_path) not in command(options)
    assert "--seed 1 --minutes 5 --batch 64 --no-compile --out garden/" in command(options)


def test_a_save_that_was_cut_short_leaves_the_last_checkpoint(trained, tmp_path):
    from nursery import checkpoints
    from torch import nn

    module = nn.Linear(2, 2)
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1)
    module(torch.ones(1, 2)).sum().backward()
    optimizer.step()
    checkpoints.save(tmp_path / "checkpoint", module, optimizer, {"step": 1})
    shutil.move(tmp_path / "checkpoint", tmp_path / "checkpoint.old")  # between the two renames
    other = nn.Linear(2, 2)
    fresh = torch.optim.AdamW(other.parameters(), lr=0.1)
    assert checkpoints.load(tmp_path / "checkpoint", other, fresh) == {"step": 1}
    assert torch.equal(other.weight, module.weight)
    assert torch.equal(fresh.state_dict()["state"][0]["exp_avg"], optimizer.state_dict()["state"][0]["exp_avg"])


def test_no_length_and_no_recipe_are_said(trained, tmp_path):
    with pytest.raises(SystemExit, match="Say how long"):
        trained("bert", "nothing")
    from nursery.recipes import Recipe

    with pytest.raises(SystemExit, match="known: albert, bert"):
        Recipe.read("brt")
    (tmp_path / "odd.yaml").write_text("architecture: X\nobjective: masked\nconfig: {}\nbach: 3\n")
    with pytest.raises(SystemExit, match="bach"):
        Recipe.read(str(tmp_path / "odd.yaml"))
