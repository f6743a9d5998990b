"""The command line as a user sees it."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from contextlib import suppress
from types import SimpleNamespace

import pytest
import zoo
from command import run, run_here

import layerscope as ls
from layerscope.__main__ import main

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
        "compare-run",
        "attention_js.parquet",
        "attention_js.png",
        "attention_js-heads.png",
    }
    given = ["compare", model, "--task", words, "--measure", "attention_js"]
    done = run_here(*given, "--pool", "tokens", "--keep-special")
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
        "compare-run",
    }
    assert "cka over reviews (3 rows)" in done.stdout
    assert "nan: every row is the same, so nothing varies." in done.stdout
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


def test_a_measure_warns_in_one_note(model, tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(f"the file is {'a ' * (i % 7)}list {i}" for i in range(40)) + "\n")
    done = run("compare", model, "--task", path, "--pool", "mean", "--measure", "cca", "--ci", "0.9")
    assert done.returncode == 0, done.stderr
    lines = done.stderr.splitlines()
    assert sum("for lack of rows" in line for line in lines) == 1
    assert all(line.startswith("note: ") for line in lines)


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


INTERRUPTED = "Interrupted. What was finished is kept: the same command goes on from there."


def test_ctrl_c_says_that_nothing_is_lost(model, home):
    command = [sys.executable, "-m", "layerscope", "extract", model, "--task", "pydocs", "--split", "train"]
    process = subprocess.Popen([*command, "--pool", "tokens"], stderr=subprocess.PIPE, text=True)
    while not list(home.glob("unfinished/representations/*")):  # at work
        assert process.poll() is None, "the run ended before it could be interrupted"
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert said.endswith(INTERRUPTED + "\n")
    assert "Traceback" not in said


def test_ctrl_c_while_modules_are_imported_is_the_same_sentence(monkeypatch, capsys):
    def interrupt(name, *_):
        if name == "layerscope.cli":
            raise KeyboardInterrupt

    monkeypatch.delitem(sys.modules, "layerscope.cli", raising=False)
    monkeypatch.setattr(sys, "meta_path", [SimpleNamespace(find_spec=interrupt), *sys.meta_path])
    with pytest.raises(SystemExit) as stop:
        main()
    assert stop.value.code == 130
    assert capsys.readouterr().err == INTERRUPTED + "\n"


def test_an_empty_key_removes_nothing(model, reviews):
    run_here("extract", model, "--task", reviews, "--text", "review")
    done = run_here("cache", "rm", "")
    assert done.returncode == 2
    assert "--all" in done.stderr
    assert len(json.loads(run_here("cache", "ls", "--format", "json").stdout)) == 1


def test_what_was_cut_off_is_said_every_time(model, tmp_path):
    path = tmp_path / "long.txt"
    path.write_text("the file " * 30 + "\n")
    for _ in range(2):
        done = run_here("extract", model, "--task", path, "--pool", "words", "--max-length", "600")
        assert "note: 1 of 1 texts of long are cut off at 80 tokens" not in done.stderr
        done = run_here("extract", model, "--task", path, "--pool", "words", "--max-length", "20")
        assert "note: 1 of 1 texts of long are cut off at 20 tokens" in done.stderr
        assert "words are left out" in done.stderr


def test_a_note_is_said_once():
    code = (
        "from layerscope.cli.streams import log, prepare\n"
        "prepare(False)\n"
        "for n in (1, 2, 1, 2): log.warning('%d texts are cut off.', n)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == "note: 1 texts are cut off.\nnote: 2 texts are cut off.\n"


def test_debug_shows_where_it_came_from():
    done = run("extract", "/no/such", "--task", "pydocs", "--debug")
    assert "Traceback" in done.stderr
    assert done.returncode != 0


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


def in_a_terminal(columns, *arguments):
    """What a command prints on a terminal so wide, line by line, without its escapes."""
    import pty
    import re
    import struct
    import termios
    from fcntl import ioctl

    ours, theirs = pty.openpty()
    ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    command = [sys.executable, "-m", "layerscope", *map(str, arguments)]
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES")} | {"TERM": "xterm"}
    process = subprocess.Popen(command, stdout=theirs, stderr=subprocess.DEVNULL, env=environment)
    os.close(theirs)
    said = b""
    with suppress(OSError):  # how a terminal says that the other side is closed
        while part := os.read(ours, 65536):
            said += part
    os.close(ours)
    assert process.wait(60) == 0
    return [line.rstrip() for line in re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", said.decode()).splitlines()]


def test_no_number_is_broken_in_a_narrow_terminal(model, reviews):
    columns = 60
    given = ["compare", model, model, "--task", reviews, "--text", "review", "--pool", "mean"]
    lines = in_a_terminal(columns, *given)
    assert max(len(line) for line in lines if line.startswith(" ")) <= columns
    expected = [row["value"] for row in json.loads(run(*given, "--format", "json").stdout)]
    shown = sorted(cell for line in lines if line[:3].strip().isdigit() for cell in line.split()[1:])
    assert shown == sorted("nan" if value is None else f"{value:.4g}" for value in expected)
    text = in_a_terminal(columns, "tasks", reviews)
    assert any("split" in line and "examples" in line for line in text)


@pytest.mark.parametrize("format", ["table", "json"])
def test_names_that_the_terminal_cannot_spell_are_escaped(format, tmp_path):
    (tmp_path / "a.csv").write_text("text,label\nthe file,caf\u00e9\n", encoding="utf-8")
    done = run("tasks", tmp_path / "a.csv", "--format", format, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr
    if format == "json":
        assert json.loads(done.stdout)[0]["labels"] == "caf\u00e9 1"
    else:
        assert "caf\\xe9 1" in done.stdout


def test_closed_streams_are_no_error():
    for closed in ("1>&-", "2>&-"):
        shell = f"{sys.executable} -m layerscope tasks {closed}"
        done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


def test_a_closed_pipe_is_no_error():
    shell = f"{sys.executable} -m layerscope tasks | head -n 1"
    done = subprocess.run(["bash", "-c", shell], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr


def test_cutting_on_the_command_line(tuned_minilm, tmp_path):
    data = ["--task", "pydocs", "--limit", "60"]
    done = run_here("truncate", tuned_minilm, *data, "--curve", "-o", tmp_path / "out", "--format", "json")
    assert done.returncode == 0, done.stderr
    curve = json.loads(done.stdout)
    assert [row["layer"] for row in curve] == list(range(7))
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"truncation.csv", "truncation.png", "truncate-run"}
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
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"advice.csv", "advice.png", "advise-run"}


def test_verbose_says_which_side_is_taken(model, reviews):
    done = run_here("compare", model, "--task", reviews, "--pool", "mean", "--verbose")
    assert done.returncode == 0, done.stderr
    assert "d x d side" in done.stderr
    assert "side" not in run_here("compare", model, "--task", reviews, "--pool", "mean").stderr


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
    assert {p.name for p in (tmp_path / "study").iterdir()} == {"strategies.csv", "strategies.png", "study-run"}
    assert "(l*+1, L, L) is left out" in done.stderr
    done = run_here("tune", model, *quick, "--learning-rate", "fast")
    assert done.returncode == 2
    assert "no learning rate" in done.stderr


def test_strategies_on_the_command_line(model, labelled):
    done = run_here("strategies", model, "--task", labelled, "--best", "2", "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = {row["strategy"]: row for row in json.loads(done.stdout)}
    assert rows["(l*-2, l*, L)"]["blocks"] == "1-2"
    assert rows["full"]["trained"] == rows["full"]["parameters"]


def test_specialty_on_the_command_line(model, labelled, tmp_path):
    done = run_here("specialty", model, "--task", labelled, "--no-probe", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "Next: layerscope tune" in done.stdout
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"specialty.csv", "specialty.png", "specialty-run"}


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
    assert names == {"specialty", "imbalance", "scarcity", "pools", "specialty-run"}
    wrong = run_here("specialty", model, "--task", labelled, "--no-probe", "--imbalance", "half")
    assert wrong.returncode != 0
    assert "write 0.5,0.25,0.1" in wrong.stderr
