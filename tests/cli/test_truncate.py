"""`layerscope truncate`"""

import json

from command import run_here

import layerscope as ls


def test_one_depth_is_shown_beside_the_whole_and_saved(classifier, words, tmp_path):
    given = ["truncate", classifier, "--task", words, "--keep", 2]
    done = run_here(*given, "--save", tmp_path / "small")
    assert done.returncode == 0, done.stderr
    assert f"Saved in {tmp_path / 'small'}, reopened and compared." in done.stdout
    assert ls.load(str(tmp_path / "small")).depth == 2
    whole, cut = json.loads(run_here(*given, "--format", "json").stdout)
    assert (whole["blocks"], cut["blocks"]) == ("1-4", "keep 1-2, head on layer 2")
    assert cut["parameters"] < whole["parameters"]
    curve = json.loads(run_here("truncate", classifier, "--task", words, "--curve", "--format", "json").stdout)
    assert [row["layer"] for row in curve] == [0, 1, 2, 3, 4]
    assert (curve[2]["score"], curve[4]["score"]) == (cut["score"], whole["score"])


def test_a_folder_of_another_kind_is_refused_before_the_work(classifier, words, tmp_path):
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("meow")
    done = run_here("truncate", classifier, "--task", words, "--keep", 2, "--save", tmp_path / "photos")
    assert done.returncode == 2
    assert "is not overwritten" in done.stderr
    assert done.stdout == ""
