"""`layerscope inject`"""

import pandas
import pytest

import layerscope as ls
from tests.helpers.models import save_random


def test_injection(classifier, words, invoke, tmp_path):
    """Every method a line; the floors beside them."""
    other = save_random(tmp_path / "other", "bert", labels=2, seed=1)
    out = tmp_path / "out"
    given = ["inject", classifier, other, "--task", words]
    done = invoke(*given, "--layers", "all", "--methods", "identity,linear", "-o", out)
    assert done.exit_code == 0, done.output
    assert "of the most frequent class" in done.output
    record = ls.read_record(out / "inject-record")
    assert record.data["n"] == int(pandas.read_csv(out / "injection.csv")["n"].iloc[-1])  # rows that were scored
    curves, _ = record.figures
    assert [one.name for one in curves.series] == ["identity", "linear", "random embedding", "random label"]
    assert {p.name for p in out.iterdir()} == {"inject-record", "injection.csv", "injection.parquet", "injection.png"}
    assert invoke("report", out, "-o", tmp_path / "report.html").exit_code == 0
    with pytest.raises(ls.LayerscopeError, match="no alignment method 'pls'"):
        invoke(*given, "--methods", "pls")


def test_fits_run_where_they_are_asked_to(classifier, words, invoke, posted):
    given = ["inject", classifier, classifier, "--task", words, "--engine", "posted"]
    assert invoke(*given, "--methods", "linear").exit_code == 0
    assert posted == ["linear from layer 4 to layer 4"]
