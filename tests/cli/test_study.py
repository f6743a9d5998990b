"""`layerscope study`"""

import json

import pytest

pytestmark = pytest.mark.filterwarnings("ignore::layerscope.errors.LayerscopeWarning")


def test_a_study_from_the_command_line(model, words, invoke, tmp_path):
    given = ["study", model, "--task", words, "--other", model, "--max-length", "16", "--budget", "5"]
    done = invoke(*given, "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "The report is" in done.output
    assert (tmp_path / "out" / "report.html").is_file()
    again = invoke(*given, "-o", tmp_path / "out", "--format", "json")
    rows = json.loads(again.stdout)["table"]
    states = {row["part"]: row["state"] for row in rows}
    left = {name for name, state in states.items() if state == "left out"}
    assert left == {
        "score",
        "patched",
        "cuts",
        "smaller",
        "stand_in",
    }  # the head has 3 outputs, and there are 2 classes
    assert {states[name] for name in states.keys() - left} == {"kept from before"}
    assert "2 classes, and the head" in rows[0]["note"]
