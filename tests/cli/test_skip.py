"""`layerscope skip`"""

import json

from command import run_here


def test_blocks_that_are_left_out_score_as_on_the_map(classifier, words, tmp_path):
    done = run_here("skip", classifier, "--task", words, "--blocks", "2-3", "--format", "json")
    assert done.returncode == 0, done.stderr
    whole, cut = json.loads(done.stdout)
    assert (whole["blocks"], cut["blocks"]) == ("1-4", "keep 1, 4, head on layer 4")
    spans = json.loads(run_here("skip", classifier, "--task", words, "--map", "--format", "json").stdout)
    assert {(row["first"], row["last"]): row["score"] for row in spans}[2, 3] == cut["score"]


def test_which_model_to_save_is_asked(classifier, words, tmp_path):
    done = run_here("skip", classifier, "--task", words, "--map", "--save", tmp_path / "x")
    assert done.returncode == 2
    assert "--save needs --blocks" in done.stderr
    done = run_here("skip", classifier, "--task", words, "--blocks", "3-2")
    assert "'3-2' runs backwards; write 2-3" in done.stderr
