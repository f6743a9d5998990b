"""`layerscope reproduce`"""

import json
from pathlib import Path

import pytest

import layerscope as ls

pytestmark = pytest.mark.filterwarnings("ignore::layerscope.errors.LayerscopeWarning")


def test_a_paper_on_another_model(model, words, invoke, tmp_path):
    given = ["reproduce", "ren2023", "--only", "norms", "--models", f"tiny={model}", "--profile", "smoke"]
    done = invoke(*given, "--tasks", words, "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert (tmp_path / "out" / "report.html").is_file()
    record = ls.read_record(next((tmp_path / "out").glob("001-norms-*/norms")))
    assert record.title.startswith("Appendix B.2. How large a space each layer fills: tiny, ")


def test_what_is_missing_is_named_and_the_exit_code_says_so(model, words, invoke, tmp_path):
    given = ["reproduce", "ren2023", "--only", "norms", "--models", model, "--profile", "smoke", "--format", "json"]
    done = invoke(*given, "--tasks", f"{words},no-such-task", "-o", tmp_path / "out")
    assert done.exit_code == 1
    assert "missing: no-such-task: " in done.output
    assert (tmp_path / "out" / "report.html").is_file()


def test_the_list(invoke):
    done = invoke("reproduce", "ren2023", "--list", "--profile", "smoke", "--format", "json")
    assert done.exit_code == 0, done.output
    rows = json.loads(done.stdout)["table"]
    assert [row["experiment"] for row in rows][:2] == ["table3", "table5"]
    assert all(row["jobs"] == 1 or row["experiment"] == "norms" for row in rows)


def test_a_paper_must_be_named(invoke):
    with pytest.raises(ls.LayerscopeError, match=r"Which paper\? There are phang2021, ren2023, resi2025"):
        invoke("reproduce")
    with pytest.raises(ls.LayerscopeError, match="paper 'phang'"):
        invoke("reproduce", "phang")


def test_a_float_type_and_a_device(model, words, invoke, tmp_path):
    given = ["reproduce", "ren2023", "--only", "norms", "--models", f"tiny={model}", "--profile", "smoke"]
    done = invoke(*given, "--tasks", words, "--dtype", "bfloat16", "--device", "cpu", "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert ls.read_record(tmp_path / "out" / "claims").settings["dtype"] == "bfloat16"
    with pytest.raises(ls.LayerscopeError, match="device 'moon' cannot be used here"):
        invoke(*given, "--tasks", words, "--device", "moon", "-o", tmp_path / "other")


def test_models_are_called_by_names(model, words, invoke, tmp_path):
    given = ["reproduce", "ren2023", "--only", "norms", "--profile", "smoke", "--tasks", words, "-o", tmp_path / "out"]
    done = invoke(*given, "--models", model, "--names", "ours")
    assert done.exit_code == 0, done.output
    record = ls.read_record(next((tmp_path / "out").glob("001-norms-*/norms")))
    assert record.title.startswith("Appendix B.2. How large a space each layer fills: ours, ")
    assert invoke(*given[:-1], tmp_path / "unnamed", "--models", model).exit_code == 0
    record = ls.read_record(next((tmp_path / "unnamed").glob("001-norms-*/norms")))
    assert f": {Path(model).name}, " in record.title  # never a path
    assert str(model) not in record.title
    for wrong, sentence in (
        (["--models", model, "--names", "a,b"], "one name for each"),
        (["--models", f"tiny={model}", "--names", "a"], "have names already"),
        (["--models", f"{model},{model}", "--names", "a,a"], "'a' twice"),
        (["--names", "a"], "name these with models"),
    ):
        with pytest.raises(ls.LayerscopeError, match=sentence):
            invoke(*given, *wrong)
        with pytest.raises(ls.LayerscopeError, match=sentence):
            invoke(*given[:-2], "--list", *wrong)
