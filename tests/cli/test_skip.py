"""`layerscope skip`"""

import json

import torch
from safetensors.torch import load_file

import layerscope as ls
from tests.helpers.cli import run_here


def test_blocks_that_are_left_out_score_as_on_the_map(classifier, words, tmp_path):
    done = run_here("skip", classifier, "--task", words, "--blocks", "2-3", "--format", "json")
    assert done.returncode == 0, done.stderr
    whole, cut = json.loads(done.stdout)["table"]
    assert (whole["blocks"], cut["blocks"]) == ("1-4", "keep 1, 4, head on layer 4")
    spans = json.loads(run_here("skip", classifier, "--task", words, "--map", "--format", "json").stdout)["table"]
    assert {(row["first"], row["last"]): row["score"] for row in spans}[2, 3] == cut["score"]


def test_which_model_to_save_is_asked(classifier, words, tmp_path):
    done = run_here("skip", classifier, "--task", words, "--map", "--save", tmp_path / "x")
    assert done.returncode == 2
    assert "--save needs --blocks" in done.stderr
    done = run_here("skip", classifier, "--task", words, "--blocks", "3-2")
    assert "'3-2' runs backwards; write 2-3" in done.stderr


def test_without_a_task_the_checkpoint_is_cut_on_disk(classifier, tmp_path, monkeypatch, invoke):
    from layerscope.cutting import cut as cutting

    def built(*_):
        raise AssertionError("the network was cut in memory")

    with monkeypatch.context() as patch:
        patch.setattr(cutting, "cut", built)
        done = invoke("skip", classifier, "--blocks", "2-3", "--save", tmp_path / "small", "--print-as", "llama.cpp")
    assert "--prune-layers 1,2" in done.stdout
    said = " ".join(done.stdout.split())
    assert "small, cut on disk, every tensor compared by its hash, reopened and compared." in said
    assert ls.load(str(tmp_path / "small")).depth == 2
    in_memory = ls.save(ls.skip(classifier, 2, 3), tmp_path / "memory")
    ours, theirs = (load_file(folder / "model.safetensors") for folder in (tmp_path / "small", in_memory))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_what_cannot_be_cut_on_disk_is_cut_in_memory_and_says_why(classifier, tmp_path, invoke):
    done = invoke("skip", classifier, "--blocks", "2", "--save", tmp_path / "half", "--dtype", "bfloat16")
    assert "cut in memory (it is open in bfloat16), reopened" in " ".join(done.stdout.split())
    assert load_file(tmp_path / "half" / "model.safetensors")["classifier.weight"].dtype == torch.bfloat16
    done = invoke("skip", f"random:{classifier}", "--blocks", "2", "--save", tmp_path / "random")
    assert "cut in memory (" in done.stdout
    assert "has no weights on disk" in " ".join(done.stdout.split())


def test_a_plan_is_printed_without_a_task_and_without_saving(classifier, words, invoke):
    done = invoke("skip", classifier, "--blocks", "2", "--print-as", "mergekit")
    assert done.stdout.startswith("slices:\n")
    assert f"- model: {classifier}\n        layer_range: [2, 4]" in done.stdout
    done = run_here("skip", classifier, "--task", words, "--map", "--print-as", "mergekit")
    assert (done.returncode, "--print-as needs --blocks" in done.stderr) == (2, True)
    done = run_here("skip", classifier, "--blocks", "7", "--print-as", "mergekit")
    assert "Block 7 was to be left out" in done.stderr
