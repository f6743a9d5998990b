"""`layerscope advise`"""

import zoo
from command import run_here
from quick import QUICK, rows

import layerscope as ls


def test_advice_on_the_command_line(tuned_minilm, tmp_path):
    options = ["--limit", "60", "--max-span", "1", "--evaluations", "0", "--tolerance", "0.2"]
    done = run_here(
        *("advise", tuned_minilm, "--task", "pydocs", *options, "--print-as", "llama.cpp"),
        *("--save", tmp_path / "small", "-o", tmp_path / "out"),
    )
    assert done.returncode == 0, done.stderr
    assert "Keep blocks" in done.stdout
    assert ls.load(str(tmp_path / "small")).depth < 6
    assert "--prune-layers " in done.stdout
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"advice.csv", "advice.png", "advise-record"}


def test_a_tool_that_is_not_known_is_refused_before_the_work(tuned_minilm):
    done = run_here("advise", tuned_minilm, "--task", "pydocs", "--print-as", "ggml")
    assert done.returncode == 2
    assert "no tool 'ggml'; allowed: mergekit, llama.cpp" in done.stderr


def test_what_cannot_be_saved_is_refused_before_the_work(tmp_path):
    base, data = zoo.save(tmp_path / "base", "bert", "encoder"), rows(60, 0)
    data.to_csv(tmp_path / "rows.csv", index=False)
    ls.tune(base, str(tmp_path / "rows.csv"), out=tmp_path / "tuned", method="adapter", size=4, **QUICK)
    done = run_here("advise", tmp_path / "tuned", "--task", tmp_path / "rows.csv", "--save", tmp_path / "small")
    assert done.returncode != 0
    assert "live adapters that no standard checkpoint can hold" in " ".join(done.stderr.split())
    assert "rows; advice needs" not in done.stderr  # which is found out later
    assert not (tmp_path / "small").exists()
