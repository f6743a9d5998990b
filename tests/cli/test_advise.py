"""`layerscope advise`"""

import json

import pytest

import layerscope as ls
from tests.helpers.cli import run_here
from tests.helpers.data import three_class_frame
from tests.helpers.models import QUICK, save_random


@pytest.mark.slow
def test_advice_on_the_command_line(tuned_minilm, tmp_path):
    options = ["--limit", "60", "--rules", "last,random", "--remove", "1-2", "--tolerance", "0.2"]
    done = run_here(
        *("advise", tuned_minilm, "--task", "pydocs", *options, "--print-as", "llama.cpp"),
        *("--save", tmp_path / "small", "-o", tmp_path / "out"),
    )
    assert done.returncode == 0, done.stderr
    assert "Keep blocks" in done.stdout
    assert ls.load(str(tmp_path / "small")).depth < 6
    assert "--prune-layers " in done.stdout
    assert "How the rules did" in done.stdout
    assert "Each rule's best plan of each size" not in done.stdout
    assert "The rules last, random propose about 8 plans." in " ".join(done.stderr.split())  # said first
    assert "runs of a block for each of" in done.stderr
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        *("advice.csv", "advice.parquet", "advice.png", "advise-record"),
    }


def test_one_plan_of_each_size_is_printed_and_the_rest_with_verbose(classifier, words, invoke):
    options = ["--task", words, "--no-timed", "--rules", "last,random,spans", "--confidence", "0"]
    done = invoke("advise", classifier, *options)
    assert done.exit_code == 0, done.stderr
    plans, _, rules = done.stdout.partition("How the rules did")
    assert "1-4 (whole model)" in plans
    assert sum(" 0." in line for line in plans.splitlines()) == 4  # the whole model and three sizes
    assert [line.split()[0] for line in rules.splitlines()[4:7]] == ["last", "random", "spans"]
    assert "Each rule's best plan" not in done.stdout
    assert "Each rule's best plan of each size" in run_here("advise", classifier, *options, "--verbose").stdout


def test_a_tool_that_is_not_known_is_refused_before_the_work(tuned_minilm):
    done = run_here("advise", tuned_minilm, "--task", "pydocs", "--print-as", "ggml")
    assert done.returncode == 2
    assert "no tool 'ggml'; allowed: mergekit, llama.cpp" in done.stderr


def test_what_cannot_be_saved_is_refused_before_the_work(tmp_path):
    base, data = save_random(tmp_path / "base", "bert", "encoder"), three_class_frame(60, 0)
    data.to_csv(tmp_path / "rows.csv", index=False)
    ls.tune(base, str(tmp_path / "rows.csv"), out=tmp_path / "tuned", method="adapter", size=4, **QUICK)
    done = run_here("advise", tmp_path / "tuned", "--task", tmp_path / "rows.csv", "--save", tmp_path / "small")
    assert done.returncode != 0
    assert "live adapters that no standard checkpoint can hold" in " ".join(done.stderr.split())
    assert "rows; advice needs" not in done.stderr  # which is found out later
    assert not (tmp_path / "small").exists()


def test_targets_in_place_of_a_tolerance(classifier, words, tmp_path):
    options = ["--task", words, "--no-timed", "--format", "json"]
    done = run_here("advise", classifier, *options, "--blocks", 2, "--rules", "last,spans", "--all")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["table"]
    chosen = [row for row in rows if row["chosen"]]
    assert len(chosen) == 1
    assert chosen[0]["chosen_on"] == max(row["chosen_on"] for row in rows if row["rule"])
    assert {row["rule"] for row in rows} == {"", "last, spans", "spans"}
    assert "latency_1_ms" not in rows[0]
    done = run_here("advise", classifier, *options, "--parameters", "10")
    assert done.returncode == 2
    assert "with one block left of 4" in " ".join(done.stderr.split())
    done = run_here("advise", classifier, *options, "--latency", "80%")
    assert "A latency was asked for, and" in done.stderr
    done = run_here("advise", classifier, *options, "--rules", "angle")
    assert "no rule 'angle'" in done.stderr


@pytest.mark.parametrize("tolerance", [0.0, 1.0])
def test_a_target_and_a_tolerance_together(classifier, words, tmp_path, tolerance):
    options = ["--task", words, "--no-timed", "--rules", "last", "--blocks", 2, "--tolerance", tolerance]
    small, met = tmp_path / "small", tolerance == 1.0
    done = run_here("advise", classifier, *options, "--format", "json", "--save", small, "-o", tmp_path / "out")
    assert done.returncode == (0 if met else 3), done.stderr
    said = json.loads(done.stdout)
    assert said["verdict"]["met"] is met
    assert said["choice"] == {"plan": "keep 1-2, head on layer 2", "keep": [1, 2], "removed": [3, 4]}
    assert said["saved"] == ({"folder": str(small), "how": said["saved"]["how"]} if met else None)
    assert small.exists() == met
    verdict = said["verdict"]
    assert verdict["misses"] == (0.0 if met else pytest.approx(verdict["loses"]))
    assert f"with 90% confidence it loses at most {verdict['loses']:.4f}" in verdict["says"]
    assert said["record"] == str(tmp_path / "out" / "advise-record")
    assert said["findings"][0]["text"] == verdict["says"]
    assert (said["asked"]["command"], said["asked"]["options"]["save"]) == ("advise", str(small))
    if not met:
        again = run_here("advise", classifier, *options, "--save", small, "--save-anyway")
        assert again.returncode == 3
        assert f"Saved in {small}" in again.stdout
        assert "Not met: The best plan that would keep 2 blocks" in again.stdout
        assert ls.load(str(small)).depth == 2


def test_where_nothing_is_met_the_exit_code_says_so(classifier, words, tmp_path):
    options = ["--task", words, "--no-timed", "--rules", "last", "--format", "json", "--save", tmp_path / "small"]
    done = run_here("advise", classifier, *options)
    assert done.returncode == 3
    assert f"Nothing was saved in {tmp_path / 'small'}" in done.stderr
    said = json.loads(done.stdout)
    assert said["verdict"]["met"] is False
    assert said["verdict"]["says"].startswith("No block is shown to be dispensable")
    assert said["saved"] is None
    assert any("rows are too few to show" in warning for warning in said["warnings"])
    done = run_here("advise", classifier, *options, "--blocks", 2, "--save-anyway")
    assert done.returncode == 2
    assert "give a target (--blocks, --parameters or --latency), --tolerance and --save too" in done.stderr


def test_a_patch_is_tried_where_a_cut_is_not_enough(classifier, words, tmp_path):
    texts = tmp_path / "unlabelled.txt"
    texts.write_text("\n".join(f"the file is {'a ' * (i % 5)}list {i}" for i in range(60)) + "\n")
    options = ["--task", words, "--no-timed", "--rules", "last", "--blocks", 2, "--tolerance", 1.0, "--patch", texts]
    done = run_here("advise", classifier, *options, "--format", "json", "--save", tmp_path / "small")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    verdict = said["verdict"]
    assert verdict["says"].startswith("The best plan that would keep 2 blocks keeps blocks 1-2 once it is patched, and")
    assert verdict["met"] is True
    assert verdict["regains_low"] <= verdict["regains"] <= verdict["regains_high"]
    assert "accuracy" in verdict["says"].split("The patch ")[1]
    assert ls.load(str(tmp_path / "small")).depth == 2


def test_where_no_block_goes_there_is_no_plan_to_print(classifier, words, tmp_path, invoke):
    done = invoke("advise", classifier, "--task", words, "--rules", "last", "--no-timed", "--print-as", "mergekit")
    assert done.exit_code == 3
    assert "No block can go, so there is no plan to print." in done.stderr
    assert "Not met: No block is shown to be dispensable" in done.stdout


def test_healing_needs_its_steps(classifier, words):
    done = run_here("advise", classifier, "--task", words, "--heal-on", words)
    assert done.returncode == 2
    assert "give --heal STEPS too" in done.stderr


@pytest.mark.slow
def test_the_fronts_plans_are_healed_and_shown_before_and_after(classifier, words, tmp_path):
    quick = ["--rules", "last", "--no-timed", "--confidence", "0", "--tolerance", "0.5", "--max-length", "16"]
    done = run_here(
        *("advise", classifier, "--task", words, *quick, "--heal", "2", "--format", "json"),
        *("--save", tmp_path / "smaller", "-o", tmp_path / "out"),
    )
    assert done.returncode == 0, done.stderr
    healed = [row["healed"] for row in json.loads(done.stdout)["table"] if row["healed"]]
    assert len(healed) > 1
    assert (tmp_path / "out" / "healed.csv").is_file()
    assert "neither chose nor healed" in (tmp_path / "smaller" / "README.md").read_text()
