"""`layerscope heal`: one folder with the checkpoint and a record, and sentences for what cannot be."""

import json
import math
from types import SimpleNamespace

import pandas
import pytest
from typer.testing import CliRunner

import layerscope as ls
from layerscope.cli import app
from layerscope.cli.heal import _show_training
from layerscope.errors import InputError
from tests.helpers.data import random_texts
from tests.helpers.models import SMALL_LLAMA, save_random

FEW = ("--steps", "2", "--batch", "2", "--max-length", "16")


@pytest.fixture
def world(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_random(tmp_path / "model", "llama", "next", **SMALL_LLAMA)
    (tmp_path / "corpus.txt").write_text("\n".join(random_texts(60)))
    return tmp_path


def run(*words):
    return CliRunner().invoke(app, ["heal", *words], catch_exceptions=False)


def test_it_cuts_heals_saves_and_records(world):
    words = ("model", "--without", "2", "--task", "corpus.txt", "--distill", *FEW, "--format", "json", "-o", "healed")
    row = json.loads(run(*words).stdout)["table"][0]
    assert (row["method"], row["teacher"], row["steps"]) == ("lora", "model", 2)
    opened = ls.load("healed")
    assert opened.depth == 2
    record = ls.read_record(world / "healed" / "heal-record")
    assert "without blocks 2 healed on corpus.txt" in record.title
    assert record.kind == "heal"
    assert [figure.kind for figure in record.figures][:1] == ["bars"]
    with pytest.raises(InputError, match="holds a record of `layerscope heal` already"):
        run(*words)


@pytest.mark.parametrize("distill", [False, True])
def test_two_tables_within_a_hundred_columns_without_empty_ones(world, distill):
    said = run("model", "--without", "2", "--task", "corpus.txt", *FEW, *["--distill"] * distill).stdout
    scores, _, training = said.partition("Training and cost: ")
    title, *lines = training.splitlines()
    tables = [*scores.splitlines()[1:], *lines[: lines.index("") if "" in lines else 4]]
    assert max(len(line) for line in tables if line.strip() and "perplexity is" not in line) <= 100
    stages = [line.split() for line in scores.splitlines() if line.split()[:1] in (["uncut"], ["cut"], ["healed"])]
    assert [len(stage) for stage in stages] == [5, 5, 2]  # the healed model is not compared with itself
    assert title.startswith("method lora, strategy ")
    assert ("teacher model, mix 0.5" in title) == distill
    assert "nan" not in scores + training


def test_tables_of_several_rows_show_what_differs(capsys):
    row = {"method": "lora", "strategy": "", "teacher": "", "mix": math.nan, "seed": 0, "steps": 3, "seconds": 1.0}
    healing = SimpleNamespace(frame=pandas.DataFrame([row, {**row, "seed": 1}]))
    _show_training(healing)
    title, _, heads, *_ = capsys.readouterr().out.splitlines()
    assert title == "Training and cost: method lora"
    assert heads.split() == ["seed", "steps", "seconds"]


def test_a_model_can_be_trained_as_it_is(world):
    done = run("model", "--task", "corpus.txt", *FEW, "--format", "json", "-o", "tuned")
    assert json.loads(done.stdout)["table"][0]["steps"] == 2
    assert ls.load("tuned").depth == ls.load("model").depth


def test_blocks_that_are_not_there_and_folders_that_are_taken(world):
    with pytest.raises(InputError, match=r"Block 9 was to be left out; model has blocks 1\.\.3"):
        run("model", "--without", "2,9", "--task", "corpus.txt")
    (world / "taken").mkdir()
    (world / "taken" / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="taken"):
        run("model", "--without", "2", "--task", "corpus.txt", "-o", "taken")
    assert ls.LayerPlan.parse("without 1,3", 3) == ls.LayerPlan([2])
