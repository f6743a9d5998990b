"""`layerscope compare`"""

import json

import pandas
import pytest

import layerscope as ls
from tests.helpers.cli import run_here


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
        "attention_js.csv",
        "attention_js.png",
        "attention_js-heads.png",
    }
    drawn = ls.read_record(out / "compare-record").figures[-1]
    assert drawn.title.startswith("Attention heads of layers 2 and 4: attention_js ")
    assert drawn.marked
    assert "Attention heads of layers 2 and 4" in ls.report(out, tmp_path / "page.html").read_text()
    assert len(ls.paper_figures(out, tmp_path / "figures", format="svg")) == 2
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
        *("cka.parquet", "cka.csv", "cka.png", "neuron.parquet", "neuron.csv", "neuron.png"),
        "compare-record",
    }
    assert "cka over reviews (3 rows)" in done.stdout
    assert "nan: every row is the same up to rounding: no column varies by a millionth of its mean." in done.stdout
    assert "with --pool mean that layer has values" in done.stdout
    done = run_here("compare", model, model, "--task", reviews, "--text", "review", "--format", "json")
    records = json.loads(done.stdout)["table"]
    assert len(records) == 25
    assert records[0]["value"] is None
    assert "cka" in {r["name"] for r in json.loads(run_here("measures", "--format", "json").stdout)["table"]}


@pytest.fixture
def lines(tmp_path):
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(f"the file is {'a ' * (i % 7)}list {i}" for i in range(40)) + "\n")
    return path


def test_compare_prints_what_was_asked_for_beside_the_values(model, lines, tmp_path):
    out = tmp_path / "out"
    given = ["compare", model, "--task", lines, "--pool", "mean", "--ci", "0.9", "--baseline"]
    done = run_here(*given, 20, "-o", out)
    assert done.returncode == 0, done.stderr
    interval = ("the lower end of the 90% interval", "the upper end of the 90% interval", "the bias")
    for heading in (*interval, "shuffled texts", "p-values", "above chance"):
        assert f"cka over lines (40 rows): {heading}\n" in done.stdout
    assert "among as many pairs of layers shuffled texts give" in done.stdout
    record = ls.read_record(out / "compare-record")
    assert [figure.title for figure in record.figures] == [
        "Similarity of layers: cka",
        "Similarity of layers above chance: cka",
    ]
    assert record.figures[0].p_value is not None
    assert any("shuffled texts give" in finding.text for finding in record.findings)
    report = run_here("report", out, "-o", tmp_path / "report.html")
    assert report.returncode == 0, report.stderr
    assert "Similarity of layers above chance" in (tmp_path / "report.html").read_text(encoding="utf-8")
    few = run_here(*given, 3)
    assert "shuffled texts\n" in few.stdout
    assert "p-values" not in few.stdout
    assert "--pool mean" not in done.stdout


def test_options_of_measures(model, lines):
    given = ["compare", model, "--task", lines, "--pool", "mean", "--measure", "svcca,pwcca,mutual_knn"]
    options = ["--option", "keep=0.8", "--option", "pwcca.keep=0.6", "--option", "k=5", "--option", "standardize=true"]
    done = run_here(*given, *options, "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["table"]
    both = {"standardize": True, "keep": 0.8, "pwcca.keep": 0.6, "k": 5}
    wanted = ls.compare(model, task=lines, pool="mean", measure=["svcca", "pwcca", "mutual_knn"], **both)
    for name, similarity in wanted.items():
        values = [row["value"] for row in rows if row["measure"] == name]
        assert values == pytest.approx(similarity.values.ravel().tolist(), abs=1e-6)


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        ("keep", "--option keep is not a name and a value"),
        ("pool=mean", "pool is not an option of a measure"),
        ("kepe=1", "has no option 'kepe'"),
        ("cca.keep=1", "is for the measure 'cca'"),
        ("keep=2", "keep is 2; it must be above 0"),
    ],
)
def test_wrong_options_are_sentences(option, sentence, model, lines):
    done = run_here("compare", model, "--task", lines, "--pool", "mean", "--measure", "svcca", "--option", option)
    assert done.returncode == 2
    assert sentence in done.stderr


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
        *("cka.parquet", "cka.csv", "cka.png"),
        *("cka-blocks.parquet", "cka-blocks.csv", "cka-blocks.png"),
    }
    table = pandas.read_parquet(out / "cka-blocks.parquet")
    assert (table["low"] < table["strength"]).all()
    assert set(table["reason"]) == {
        "no p-value: 2 blocks need 5 known steps between neighbouring layers, and there are 4"
    }
    assert "interval" not in run_here(*given).stdout
    printed = json.loads(run_here(*given, "--format", "json").stdout)
    assert [(row["measure"], row["block"]) for row in printed["more"]["blocks"]] == [("cka", 1), ("cka", 2)]
    assert len(printed["table"]) == 25
