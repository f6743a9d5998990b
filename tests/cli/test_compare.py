"""`layerscope compare`"""

import json

import pandas
from command import run_here


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
    assert done.returncode == 0, done.stderr  # any text is split at whitespace


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


def test_compare_splits_into_blocks(model, tmp_path):
    path, out = tmp_path / "lines.txt", tmp_path / "out"
    path.write_text("\n".join(f"the file is {'a ' * (i % 7)}list {i}" for i in range(40)) + "\n")
    given = ["compare", model, "--task", path, "--pool", "mean", "--blocks"]
    done = run_here(*given, "--ci", "0.9", "-o", out)
    assert done.returncode == 0, done.stderr
    assert "2 blocks, cut before layer" in done.stdout
    assert "90% interval" in done.stdout
    assert "no p-value: 2 blocks need 5 known steps" in done.stdout  # the model has layers 0..4
    assert {p.name for p in out.iterdir() if p.is_file()} == {
        *("cka.parquet", "cka.png", "cka-blocks.parquet", "cka-blocks.png"),
    }
    table = pandas.read_parquet(out / "cka-blocks.parquet")
    assert (table["low"] < table["strength"]).all()
    assert set(table["reason"]) == {
        "no p-value: 2 blocks need 5 known steps between neighbouring layers, and there are 4"
    }
    assert "interval" not in run_here(*given).stdout
