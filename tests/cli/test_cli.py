"""The command line as a user sees it."""

import json
import shlex
import subprocess
import sys

import pytest
import zoo
from command import run, run_here

import layerscope as ls

COMMANDS = [
    [],
    ["extract"],
    ["compare"],
    ["evaluate"],
    ["truncate"],
    ["skip"],
    ["advise"],
    ["specialty"],
    ["align"],
    ["inject"],
    ["tune"],
    ["strategies"],
    ["report"],
    ["figures"],
    ["measures"],
    ["tasks"],
    ["models"],
    ["demo"],
    ["cache"],
    ["cache", "ls"],
    ["cache", "verify"],
    ["cache", "rm"],
]


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_every_help_text_ends_with_an_example(command):
    done = run(*command, "--help")
    assert done.returncode == 0
    assert "Example:  layerscope" in done.stdout


def test_help_imports_nothing_heavy():
    code = (
        "import sys; sys.argv = ['layerscope', 'extract', '--help']\n"
        "from layerscope.cli import main\n"
        "try: main()\nexcept SystemExit: pass\n"
        "heavy = {'torch', 'transformers', 'numpy', 'pandas', 'datasets', 'pyarrow', 'yaml'}\n"
        "print('HEAVY', sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "HEAVY []" in done.stdout


def test_version():
    assert run("--version").stdout.strip() == f"layerscope {ls.__version__}"


def test_extract_prints_a_table_or_json_and_saves(model, reviews, tmp_path):
    out = tmp_path / "rows"
    done = run_here("extract", model, "--task", reviews, "--text", "review", "--label", "stars", "-o", out)
    assert done.returncode == 0, done.stderr
    assert "reviews (all), pool cls" in done.stdout
    assert "Saved in" in done.stdout
    reps = ls.Representations.load(out)
    assert reps.labels.tolist() == [1, 0, 0]
    assert reps.label_names == ("1", "5")
    done = run_here("extract", model, "--task", reviews, "--text", "review", "--layers", "0,2-3", "--format", "json")
    records = json.loads(done.stdout)
    assert [r["layer"] for r in records] == ["0", "2", "3"]
    assert records[0]["top_direction"] is None  # the summary token of layer 0: undefined, not 0


def test_compare_attention(model, reviews, tmp_path):
    out = tmp_path / "out"
    words = tmp_path / "words.txt"
    words.write_text("the file is a list\nreturn this string of value s\nnot an object\n")
    done = run_here("compare", model, model, "--task", words, "--measure", "attention_js", "--heads", "2,4", "-o", out)
    assert done.returncode == 0, done.stderr
    assert "attention_js over words" in done.stdout
    assert {path.name for path in out.iterdir()} == {
        "compare-record",
        "attention_js.parquet",
        "attention_js.png",
        "attention_js-heads.png",
    }
    given = ["compare", model, "--task", words, "--measure", "attention_js"]
    done = run_here(*given, "--pool", "tokens", "--special")
    assert done.returncode == 0, done.stderr
    done = run_here(*given, "--heads", "2,4")
    assert done.returncode != 0
    assert "needs --out" in done.stderr
    done = run_here("compare", model, "--task", reviews, "--text", "review", "--measure", "attention_js")
    assert "split into words" in done.stderr


def test_compare_writes_tables_and_figures(model, reviews, tmp_path):
    out = tmp_path / "out"
    done = run_here("compare", model, "--task", reviews, "--text", "review", "--measure", "cka,neuron", "-o", out)
    assert done.returncode == 0, done.stderr
    assert {p.name for p in out.iterdir()} == {
        *("cka.parquet", "cka.png", "neuron.parquet", "neuron.png"),
        "compare-record",
    }
    assert "cka over reviews (3 rows)" in done.stdout
    assert "nan: every row is the same, so nothing varies." in done.stdout
    assert "with --pool mean that layer has values" in done.stdout
    done = run_here("compare", model, model, "--task", reviews, "--text", "review", "--format", "json")
    records = json.loads(done.stdout)
    assert len(records) == 25
    assert records[0]["value"] is None
    assert "cka" in {r["name"] for r in json.loads(run_here("measures", "--format", "json").stdout)}


def test_compare_prints_what_was_asked_for_beside_the_values(model, tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(f"the file is {'a ' * (i % 7)}list {i}" for i in range(40)) + "\n")
    done = run_here("compare", model, "--task", path, "--pool", "mean", "--ci", "0.9", "--baseline")
    assert done.returncode == 0, done.stderr
    for heading in ("the lower end of the 90% interval", "the upper end of the 90% interval", "shuffled rows"):
        assert f"cka over lines (40 rows): {heading}\n" in done.stdout
    assert "--pool mean" not in done.stdout


def test_names_in_angle_brackets_are_not_lost():
    assert "garden:NAME" in run_here("specialty", "--help").stdout


def test_tasks_and_models(model, reviews):
    names = {r["name"] for r in json.loads(run_here("tasks", "--format", "json").stdout)}
    assert {"sst2", "pydocs", "ewt-genre"} <= names
    splits = json.loads(run_here("tasks", reviews, "--format", "json").stdout)
    assert splits[0]["examples"] == 3
    families = {r["family"] for r in json.loads(run_here("models", "--format", "json").stdout)}
    assert families >= set(zoo.FAMILIES)
    record = json.loads(run_here("models", model, "--format", "json").stdout)[0]
    assert record["self_check"] == "replay is sound"
    assert record["blocks"] == "1..4 at encoder.layer"


@pytest.mark.parametrize("command", [[], ["cache"]], ids=["layerscope", "layerscope cache"])
def test_without_arguments_there_is_help(command):
    done = run_here(*command)
    assert "Traceback" not in done.stderr
    assert "Usage: " in done.stdout + done.stderr


def test_an_empty_key_removes_nothing(model, reviews):
    run_here("extract", model, "--task", reviews, "--text", "review")
    done = run_here("cache", "rm", "")
    assert done.returncode == 2
    assert "--all" in done.stderr
    assert len(json.loads(run_here("cache", "ls", "--format", "json").stdout)) == 1


def test_bad_rows_stop_or_are_skipped(model, tmp_path):
    path = tmp_path / "bad.csv"
    path.write_text("text,label\nthe file,1\n,0\na list,0\n")
    done = run_here("extract", model, "--task", path)
    assert done.returncode == 2
    assert "line 3, column 'text'" in done.stderr
    done = run_here("extract", model, "--task", path, "--skip-bad", "--format", "json")
    assert json.loads(done.stdout)[0]["rows"] == 2
    assert "note: 1 of 3 rows" in done.stderr


def test_the_cache_is_listed_verified_and_pruned(model, reviews, home):
    run_here("extract", model, "--task", reviews, "--text", "review")
    listed = json.loads(run_here("cache", "ls", "--format", "json").stdout)
    assert [r["kind"] for r in listed] == ["representations"]
    assert run_here("cache", "verify").returncode == 0
    shard = next(home.rglob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    done = run_here("cache", "verify")
    assert done.returncode == 1
    assert "does not match its checksum" in done.stdout or "bytes instead of" in done.stdout
    assert "Removed 1 results" in run_here("cache", "rm", listed[0]["key"]).stdout
    assert json.loads(run_here("cache", "ls", "--format", "json").stdout) == []


def test_cutting_on_the_command_line(tuned_minilm, tmp_path):
    data = ["--task", "pydocs", "--limit", "60"]
    done = run_here("truncate", tuned_minilm, *data, "--curve", "-o", tmp_path / "out", "--format", "json")
    assert done.returncode == 0, done.stderr
    curve = json.loads(done.stdout)
    assert [row["layer"] for row in curve] == list(range(7))
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"truncation.csv", "truncation.png", "truncate-record"}
    done = run_here("truncate", tuned_minilm, *data, "--keep", 5, "--save", tmp_path / "small")
    assert done.returncode == 0, done.stderr
    assert "reopened and compared" in done.stdout
    done = run_here("evaluate", tmp_path / "small", *data, "--format", "json")
    assert json.loads(done.stdout)[0]["score"] == curve[5]["score"]
    assert f"{curve[5]['score']:.4f}" in (tmp_path / "small" / "README.md").read_text()
    done = run_here("skip", tuned_minilm, *data, "--map", "--max-span", 1, "-o", tmp_path / "out", "--format", "json")
    spans = json.loads(done.stdout)
    assert [(row["first"], row["last"]) for row in spans] == [(b, b) for b in range(1, 7)]
    done = run_here("skip", tuned_minilm, *data, "--blocks", "3", "--format", "json")
    assert json.loads(done.stdout)[1]["score"] == spans[2]["score"]


def test_advice_on_the_command_line(tuned_minilm, tmp_path):
    options = ["--limit", "60", "--max-span", "1", "--evaluations", "0", "--tolerance", "0.2"]
    done = run_here(
        "advise", tuned_minilm, "--task", "pydocs", *options, "--save", tmp_path / "small", "-o", tmp_path / "out"
    )
    assert done.returncode == 0, done.stderr
    assert "Keep blocks" in done.stdout
    assert ls.load(str(tmp_path / "small")).depth < 6
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"advice.csv", "advice.png", "advise-record"}


def test_tuning_on_the_command_line(model, labelled, tmp_path):
    quick = ["--task", labelled, "--epochs", "1", "--batch", "8", "--format", "json"]
    done = run_here("tune", model, *quick, "--strategy", "(l*, L, L)", "--seeds", "2", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)
    assert [row["seed"] for row in rows] == [0, 1]
    assert done.stderr.count("with the least nu") == 1
    assert ls.load(str(tmp_path / "out" / "seed-1" / "checkpoint")).depth == 4
    done = run_here("evaluate", tmp_path / "out" / "seed-0" / "checkpoint", "--task", labelled, "--format", "json")
    assert json.loads(done.stdout)[0]["score"] == rows[0]["score"]
    done = run_here("tune", model, *quick, "--study", "--best", "4", "-o", tmp_path / "study")
    assert done.returncode == 0, done.stderr
    assert {p.name for p in (tmp_path / "study").iterdir()} == {"strategies.csv", "strategies.png", "study-record"}
    assert "(l*+1, L, L) with finetune is left out" in done.stderr
    assert "One seed gives no standard error" in done.stderr
    done = run_here("tune", model, *quick, "--learning-rate", "fast")
    assert done.returncode == 2
    assert "no learning rate" in done.stderr


def test_strategies_on_the_command_line(model, labelled):
    done = run_here("strategies", model, "--task", labelled, "--best", "2", "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = {row["strategy"]: row for row in json.loads(done.stdout)}
    assert rows["(l*-2, l*, L)"]["blocks"] == "1-2"
    assert rows["full"]["trainable"] == rows["full"]["parameters"]


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
