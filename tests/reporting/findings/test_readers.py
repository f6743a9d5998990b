"""Every table finds its reader by its columns."""

import numpy as np
import pandas

import layerscope as ls
from layerscope.reporting.findings.readers import READERS, findings_of, frames_of


def test_a_record_reads_the_same_before_and_after_it_is_written(tmp_path):
    result = ls.compare([np.random.default_rng(k).normal(size=(60, 3)) for k in range(4)])
    made = ls.Record.of("compare", "Layers", {"cka": result})
    kept = ls.read_record(ls.write_record(tmp_path / "record", made))
    assert findings_of(made) == findings_of(kept)
    assert findings_of(made)
    assert list(frames_of(kept)) == ["cka"]


def test_no_reader_hides_a_later_one():
    for k, (columns, _) in enumerate(READERS):
        assert not any(earlier <= columns for earlier, _ in READERS[:k]), columns


def test_an_unknown_or_an_empty_table_says_nothing():
    class Named(ls.Result):
        name, provenance = "x", {}

        def __init__(self, frame):
            self._frame = frame

        @property
        def frame(self):
            return self._frame

        def figures(self):
            return []

    unknown = {"a": Named(pandas.DataFrame({"a": [1]})), "b": Named(pandas.DataFrame())}
    assert findings_of(ls.Record(kind="x", title="x", figures=[], results=unknown)) == []


def test_answers_come_first():
    draw = np.random.default_rng(0).normal
    result = ls.compare([draw(size=(60, 3)) for _ in range(8)])
    split = ls.blocks(result, k=2)
    told = findings_of(ls.Record.of("compare", "Layers", {"cka": result, "blocks": split}))
    assert [finding.weight for finding in told] == sorted((f.weight for f in told), reverse=True)
    assert told[0].text.startswith("The best split")


def test_a_table_of_somebody_else_is_left_out_of_the_summary(tmp_path, caplog):
    odd = pandas.DataFrame({name: ["x"] for columns, _ in READERS for name in columns})
    for columns, _ in READERS:
        record = ls.Record(kind="advise", title="Odd", figures=[], tables={"t": odd[sorted(columns)]}, models=[{}])
        ls.report(record, tmp_path / "r.html")
    lm = odd.assign(metric="perplexity")
    for columns, _ in READERS:
        part = lm[sorted(columns)]
        ls.report(ls.Record(kind="x", title="Odd", figures=[], tables={"t": part}, models=[{}]), tmp_path / "r.html")
