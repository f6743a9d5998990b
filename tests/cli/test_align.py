"""`layerscope align`"""

import pandas
import pytest

import layerscope as ls
from layerscope.models.fingerprint import fingerprint
from tests.helpers.models import save_random


@pytest.mark.filterwarnings("ignore:.*correlations at 1")  # the words of a few short texts come again and again
def test_alignment(classifier, words, invoke, tmp_path):
    """Two models, so two weights in the record; every method a line."""
    other = save_random(tmp_path / "other", "bert", labels=2, seed=1)
    out = tmp_path / "out"
    done = invoke("align", classifier, other, "--task", words, "--methods", "linear,cca,pwcca", "-o", out)
    assert done.exit_code == 0, done.output
    found = ls.read_record(out / "align-record")
    assert [m["weights"] for m in found.models] == [fingerprint(ls.load(m)) for m in (classifier, other)]
    curves, table = found.figures
    assert found.data["n"] == int(pandas.read_csv(out / "alignment.csv")["n"].iloc[-1])  # rows that were scored
    assert [one.name for one in curves.series] == ["linear", "cca"]
    assert table.table["method"] == ["linear", "cca", "pwcca"]
    assert "in place of" not in done.stderr
    done = invoke(
        "align",
        classifier,
        "--task",
        words,
        "--target-layers",
        "every",
        "--methods",
        "linear",
        "-o",
        out,
        "--overwrite",
    )
    assert f"{out / 'align-record'}, in place of the one before;" in done.stderr
    assert ls.read_record(out / "align-record").figures[0].values.shape == (5, 5)
    assert {p.name for p in out.iterdir()} == {"align-record", "alignment.csv", "alignment.parquet", "alignment.png"}
    assert invoke("report", out, "-o", tmp_path / "report.html").exit_code == 0
    with pytest.raises(ls.LayerscopeError, match="no alignment method 'pls'"):
        invoke("align", classifier, other, "--task", words, "--methods", "pls")


def test_many_models_are_a_study(classifier, words, invoke):
    with pytest.raises(ls.LayerscopeError, match="3 models were given; without --study one is mapped to another"):
        invoke("align", classifier, classifier, classifier, "--task", words)


def test_known_maps_are_a_study_of_one_model(classifier, words, invoke, tmp_path):
    out, options = tmp_path / "out", ["--true-maps", "linear", "--noise", "0,0.5", "--repeats", "2"]
    done = invoke(
        "align",
        classifier,
        "--task",
        words,
        "--synthetic",
        "--methods",
        "mean,linear",
        "--layers",
        "2",
        *options,
        "-o",
        out,
    )
    assert done.exit_code == 0, done.output
    frame = pandas.read_csv(out / "synthetic.csv")
    assert frame.groupby(["truth", "noise", "method"]).size().tolist() == [2] * 4
    means = frame[frame["noise"] == 0].groupby("method")["relative"].mean()
    assert means["linear"] < 0.2 * means["mean"]
    assert ls.read_record(out / "align-record").data
    for given, sentence in (
        (["--synthetic", "--study"], "--synthetic maps the states of one model"),
        (["--synthetic", "--layers", "1,2"], "--synthetic takes one layer; --layers 1,2 names 2"),
        (["--target-layers", "every", "--repeats", "2"], "--repeats is for --synthetic"),
    ):
        with pytest.raises(ls.LayerscopeError, match=sentence):
            invoke("align", classifier, "--task", words, *given)


def test_fits_run_where_they_are_asked_to(classifier, words, invoke, posted):
    given = ["align", classifier, classifier, "--task", words, "--engine", "posted", "--layers", "2"]
    assert invoke(*given, "--methods", "linear,mean").exit_code == 0
    assert [name.split()[0] for name in posted] == ["linear", "mean"]
    known = ["align", classifier, "--task", words, "--synthetic", "--true-maps", "linear", "--noise", "0"]
    assert invoke(*known, "--repeats", "1", "--methods", "linear", "--engine", "posted").exit_code == 0
    assert posted[2:] == ["linear to linear, noise 0, repeat 0"]
