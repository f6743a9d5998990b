"""`layerscope truncate`"""

import json
from pathlib import Path

import layerscope as ls
from tests.helpers.cli import run_here
from tests.helpers.models import save_random


def test_one_depth_is_shown_beside_the_whole_and_saved(classifier, words, tmp_path):
    given = ["truncate", classifier, "--task", words, "--keep", 2]
    done = run_here(*given, "--save", tmp_path / "small")
    assert done.returncode == 0, done.stderr
    assert f"Saved in {tmp_path / 'small'}, reopened and compared." in done.stdout
    assert ls.load(str(tmp_path / "small")).depth == 2
    whole, cut = json.loads(run_here(*given, "--format", "json").stdout)["table"]
    assert (whole["blocks"], cut["blocks"]) == ("1-4", "keep 1-2, head on layer 2")
    assert cut["parameters"] < whole["parameters"]
    curve = json.loads(run_here("truncate", classifier, "--task", words, "--curve", "--format", "json").stdout)["table"]
    assert [row["layer"] for row in curve] == [0, 1, 2, 3, 4]
    assert (curve[2]["score"], curve[4]["score"]) == (cut["score"], whole["score"])


def test_a_folder_of_another_kind_is_refused_before_the_work(classifier, words, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("meow")
    done = run_here("truncate", classifier, "--task", words, "--keep", 2, "--save", tmp_path / "photos")
    assert done.returncode == 2
    assert "is not overwritten" in done.stderr
    assert done.stdout == ""


def test_heads_are_trained_on_every_layer(classifier, model, words):
    given = ["truncate", classifier, "--task", words, "--curve", "--format", "json"]
    trained = ["--epochs", 2, "--learning-rate", "1e-2", "--train-limit", 40]
    curves = {}
    for mode, more in (("tuned", []), ("tunedorig", ["--base", model])):
        done = run_here(*given, "--mode", mode, *more, *trained)
        assert done.returncode == 0, done.stderr
        curves[mode] = json.loads(done.stdout)["table"]
    data = ls.task(str(words))
    options = {"epochs": 2, "learning_rate": 1e-2, "train_limit": 40}
    expected = ls.truncation_curve(str(classifier), data, mode="tunedorig", base=str(model), **options).frame
    assert [row["score"] for row in curves["tunedorig"]] == expected["score"].tolist()
    assert [row["layer"] for row in curves["tuned"]] == [0, 1, 2, 3, 4]
    shown = run_here(*given[:-2], "--mode", "tuned", *trained)
    assert f"The head of {Path(classifier).name}, trained further on every layer" in shown.stdout


def test_options_of_trained_heads_are_refused_elsewhere(classifier, words):
    given = ["truncate", classifier, "--task", words]
    for more, message in (
        (["--curve", "--mode", "tune"], "no mode 'tune'; allowed: untuned, patched, tuned, tunedorig"),
        (["--keep", 2, "--mode", "tuned"], "give --curve, not --keep"),
        (["--curve", "--mode", "tunedorig"], "--base, the untuned model, belongs to --mode tunedorig"),
        (["--curve", "--epochs", 2], "--epochs is for heads that are trained"),
    ):
        done = run_here(*given, *more)
        assert done.returncode == 2
        assert message in done.stderr


def test_saving_alone_needs_no_task(tmp_path):
    folder = save_random(tmp_path / "whole", "llama", "next")
    done = run_here("truncate", folder, "--keep", 2, "--save", tmp_path / "small", "--dtype", "bfloat16")
    assert done.returncode == 0, done.stderr
    assert "reopened and compared" in done.stdout
    assert type(ls.load(tmp_path / "small").network).__name__ == "LlamaForCausalLM"
    done = run_here("truncate", folder, "--keep", 2)
    assert done.returncode == 2
    assert "Name a task" in done.stderr
    done = run_here("truncate", folder, "--keep", 2, "--save", tmp_path / "other", "-o", tmp_path / "out")
    assert "--out keeps what was measured" in done.stderr


def test_the_logit_lens_of_a_language_model(tmp_path):
    folder = save_random(tmp_path / "whole", "gpt2", "next")
    (tmp_path / "texts.txt").write_text("the file is a list\nof value s and more\n" * 10)
    given = ["--task", tmp_path / "texts.txt", "--kind", "text", "--max-length", 16, "--by-text"]
    done = run_here("truncate", folder, *given, "--curve", "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["table"]
    assert [row["metric"] for row in rows] == ["perplexity"] * 5
    (score,) = json.loads(run_here("evaluate", folder, *given, "--format", "json").stdout)["table"]
    assert score["score"] == rows[-1]["score"]
    assert {"nll", "bits_per_byte", "tokens"} <= set(score)


def test_what_a_patch_did_is_said_beside_the_scores(classifier, words, tmp_path):
    """With a task the table alone was shown, and nothing of what was solved, or why not."""
    (tmp_path / "texts.txt").write_text("\n".join(f"a value of the list {k}" for k in range(30)))
    given = ["truncate", classifier, "--task", words, "--keep", 2, "--patch", tmp_path / "texts.txt"]
    done = run_here(*given)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    assert "Solved anew without training" in said or "no better than the plain cut" in said or "is not applied" in said
    told = [each["text"] for each in json.loads(run_here(*given, "--format", "json").stdout)["findings"]]
    assert len(told) == len(set(told))
    assert told[-1] in said
