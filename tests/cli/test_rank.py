"""`layerscope rank`"""

import json
from pathlib import Path

from tests.helpers.cli import run_here


def test_rank_on_the_command_line(model, labelled, tmp_path):
    done = run_here("rank", model, model, "--task", labelled, "--no-timed", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "PRESS of the best layer of each model" in done.stdout
    assert "cannot be told apart with these rows" in done.stdout
    assert {path.name for path in (tmp_path / "out").iterdir()} >= {"ranking.csv", "rank-record"}
    done = run_here("rank", model, "--task", labelled, "--no-timed", "--null", "0", "--format", "json")
    (row,) = json.loads(done.stdout)["table"]
    assert row["model"] == Path(model).name
    assert row["ties"] is True
    refused = run_here("rank", model)
    assert refused.returncode == 2
