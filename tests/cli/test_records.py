"""Every command that computes something leaves a record that `report` and `figures` can show."""

import json
import shlex
import sys

import pandas
import pytest
import zoo
from typer.testing import CliRunner

import layerscope as ls
from layerscope.cli import app
from layerscope.models.identity import fingerprint


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return zoo.save(tmp_path_factory.mktemp("model"), "bert", labels=2)


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    for split, count in (("train", 48), ("validation", 40)):
        rows = [f"the {'file' if i % 2 else 'list'} is {i},{'file' if i % 2 else 'list'}" for i in range(count)]
        (folder / f"{split}.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    return folder


@pytest.fixture
def run(monkeypatch):
    def call(*arguments):
        words = [str(a) for a in arguments]
        monkeypatch.setattr(sys, "argv", ["layerscope", *words])
        return CliRunner().invoke(app, words, catch_exceptions=False)

    return call


QUICK = ["--epochs", 2, "--batch", 8]
COMMANDS = {
    "extract": (["extract"], {"curve", "table"}),
    "compare": (["compare", "--pool", "mean", "--measure", "cka,mutual_knn", "--ci", "0.9"], {"heatmap"}),
    "evaluate": (["evaluate"], {"bars"}),
    "truncate": (["truncate", "--curve"], {"curve", "table"}),
    "cut": (["truncate", "--keep", 2], {"table"}),
    "skip": (["skip", "--map"], {"heatmap", "table"}),
    "advise": (["advise", "--max-span", 1, "--evaluations", 0], {"scatter", "table"}),
    "specialty": (["specialty"], {"curve", "bars", "table"}),
    "tune": (["tune", "--strategy", "(3, 4, 4)", "--seeds", 2, *QUICK], {"box", "curve", "table"}),
    "study": (["tune", "--study", "--best", 3, "--preset", "wu2020", *QUICK], {"scatter", "table"}),
    "strategies": (["strategies", "--best", 2], {"table"}),
}


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_command_leaves_a_run_folder_that_can_be_shown(kind, model, words, run, tmp_path):
    (command, *options), kinds = COMMANDS[kind]
    out = tmp_path / "out"
    done = run(command, model, "--task", words, *options, "-o", out)
    assert done.exit_code == 0, done.output
    assert f"layerscope report {out}" in done.stderr  # what to do next
    found = ls.read_record(out / f"{kind}-record")
    assert found.kind == kind
    assert {figure.kind for figure in found.figures} == kinds
    for figure in found.figures:
        assert figure.shows
        assert figure.reading
    assert [m["weights"] for m in found.models] == [fingerprint(ls.load(model))]
    assert shlex.split(found.command)[:3] == ["layerscope", command, model]
    assert found.versions["layerscope"] == ls.__version__
    assert found.seconds >= 0
    assert found.created.startswith("20")
    if kind != "strategies":
        split = "train" if kind in ("specialty", "tune", "study") else "validation"
        examples = ls.task(str(words)).split(split)
        assert (found.data["split"], found.data["n"]) == (split, len(examples))
        assert found.data["fingerprint"] == examples.fingerprint
    done = run("report", out, "-o", tmp_path / "report.html", "--title", "Ours")
    assert done.exit_code == 0, done.output
    assert "The report is" in done.output
    page = (tmp_path / "report.html").read_text()
    assert found.title in page
    assert "<title>Ours</title>" in page
    done = run("figures", out, "--format", "svg", "--width", "8cm", "-o", tmp_path / "figures")
    assert len(done.stdout.splitlines()) == len(found.figures)


def test_alignment_and_injection(model, words, run, tmp_path):
    """Two models, so two weights in the run; every method a line; the floors beside them."""
    other = zoo.save(tmp_path / "other", "bert", labels=2, seed=1)
    out = tmp_path / "out"
    done = run("align", model, other, "--task", words, "--method", "linear,cca,pwcca", "-o", out)
    assert done.exit_code == 0, done.output
    found = ls.read_record(out / "align-record")
    assert [m["weights"] for m in found.models] == [fingerprint(ls.load(m)) for m in (model, other)]
    curves, table = found.figures
    assert found.data["n"] == _rows(out / "alignment.csv")
    assert [one.name for one in curves.series] == ["linear", "cca"]
    assert table.table["method"] == ["linear", "cca", "pwcca"]
    assert "in place of" not in done.stderr
    done = run("align", model, "--task", words, "--against", "every", "--method", "linear", "-o", out)
    assert f"{out / 'align-record'}, in place of the one before;" in done.stderr
    assert ls.read_record(out / "align-record").figures[0].values.shape == (5, 5)
    done = run("inject", model, other, "--task", words, "--layer", "all", "--method", "identity,linear", "-o", out)
    assert done.exit_code == 0, done.output
    assert "of the most frequent class" in done.output
    assert ls.read_record(out / "inject-record").data["n"] == _rows(out / "injection.csv")
    curves, _ = ls.read_record(out / "inject-record").figures
    assert [one.name for one in curves.series] == ["identity", "linear", "random embedding", "random label"]
    assert {p.name for p in out.iterdir()} == {
        *("align-record", "alignment.csv", "alignment.png", "inject-record", "injection.csv", "injection.png")
    }
    assert run("report", out, "-o", tmp_path / "report.html").exit_code == 0
    with pytest.raises(ls.LayerscopeError, match="no alignment method 'pls'"):
        run("align", model, other, "--task", words, "--method", "pls")


def _rows(table):
    """How many rows were scored."""
    return int(pandas.read_csv(table)["n"].iloc[-1])


def test_the_values_in_the_folder_are_the_command_s(model, words, run, tmp_path):
    done = run("truncate", model, "--task", words, "--curve", "--format", "json", "-o", tmp_path)
    scores = [row["score"] for row in json.loads(done.stdout)]
    curve, table = ls.read_record(tmp_path / "truncate-record").figures
    assert list(curve.series[0].y) == scores
    assert table.table["score"] == scores
    done = run("skip", model, "--task", words, "--map", "-o", tmp_path)
    assert f"the whole model scores {scores[-1]:.4f}" in " ".join(done.stdout.split())
    first, second = ls.read_record(tmp_path / "skip-record").figures
    for i, j, score in zip(*(second.table[name] for name in ("first", "last", "score")), strict=True):
        assert first.values[j - 1, i - 1] == score
    done = run("report", tmp_path, "-o", tmp_path / "both.html")  # both runs, from the one folder
    assert (tmp_path / "both.html").read_text().count('<section class="record"') == 2


def test_without_o_nothing_is_written(model, words, run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run("evaluate", model, "--task", words).exit_code == 0
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_told_before_the_work(model, words, run, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ls.LayerscopeError, match="file is a file; give another path"):
        run("evaluate", "no/such/model", "--task", words, "-o", tmp_path / "file" / "out")
