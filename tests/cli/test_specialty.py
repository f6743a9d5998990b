"""`layerscope specialty`"""

import json
import shlex

from command import run_here


def test_specialty_on_the_command_line(model, labelled, tmp_path):
    done = run_here("specialty", model, "--task", labelled, "--no-probe", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "Next: layerscope tune" in done.stdout
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"specialty.csv", "specialty.png", "specialty-record"}


def test_the_recommended_command_can_be_run_as_it_stands(model, tmp_path):
    rows = [f"the {'file' if i % 2 else 'list'} is {i},{'file' if i % 2 else 'list'}" for i in range(60)]
    (tmp_path / "data.csv").write_text("words,kind\n" + "\n".join(rows) + "\n")
    given = ["--task", tmp_path / "data.csv", "--text", "words", "--label", "kind"]
    done = run_here("specialty", model, *given, "--no-probe")
    assert done.returncode == 0, done.stderr
    expected = shlex.join(map(str, ["layerscope", "tune", model, *given]))
    assert expected in done.stdout


def test_robustness_of_specialty_on_the_command_line(model, labelled, tmp_path):
    asked = ["--imbalance", "0.5,0.3", "--scarcity", "8", "--pools", "mean,cls", "--tuned", model]
    done = run_here(
        "specialty", model, "--task", labelled, "--no-probe", *asked, "-o", tmp_path / "out", "--format", "json"
    )
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    settings = {(row.get("experiment"), row.get("setting")) for row in rows}
    assert ("imbalance", "p = 0.3") in settings
    assert ("scarcity", "N = 8") in settings
    assert ("pools", f"{model}, cls") in settings
    names = {p.stem for p in (tmp_path / "out").iterdir()}
    assert names == {"specialty", "imbalance", "scarcity", "pools", "specialty-record"}
    wrong = run_here("specialty", model, "--task", labelled, "--no-probe", "--imbalance", "half")
    assert wrong.returncode != 0
    assert "write 0.5,0.25,0.1" in wrong.stderr
