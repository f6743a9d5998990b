"""Records as values."""

import numpy as np
import pandas

import layerscope as ls


def test_a_record_is_made_of_what_its_results_say():
    draw = np.random.default_rng(0).normal
    arrays = [draw(size=(60, 4)) for _ in range(3)]
    similarity, blocks = ls.compare(arrays), ls.layer_blocks(ls.compare(arrays * 2))
    record = ls.Record.of("compare", "title", {"cka": similarity, "blocks": blocks}, settings={"seed": 3, "no": None})
    assert record.findings == [*similarity.findings(), *blocks.findings()]
    assert record.settings == {"seed": 3}
    assert record.data["n"] == 60
    assert record.versions["layerscope"] == ls.__version__
    assert [figure.kind for figure in record.figures] == ["heatmap", "heatmap"]


def test_a_record_says_the_same_before_and_after_it_is_written(tmp_path):
    result = ls.compare([np.random.default_rng(k).normal(size=(60, 3)) for k in range(4)])
    made = ls.Record.of("compare", "Layers", {"cka": result})
    kept = ls.read_record(ls.write_record(tmp_path / "record", made))
    assert list(made.findings) == list(kept.findings)
    assert made.findings
    assert made.next == kept.next == result.next_step()
    assert made.kinds == kept.kinds == {"cka": "similarity"}
    for record in (made, kept):
        (frame,) = record.frames("similarity")
        assert len(frame) == 16
        assert record.frames("cka") == []


def test_the_last_result_that_leads_on_says_where_to():
    draw = np.random.default_rng(0).normal
    similarity = ls.compare([draw(size=(60, 4)) for _ in range(6)])
    record = ls.Record.of("compare", "title", {"cka": similarity, "blocks": ls.layer_blocks(similarity)})
    assert record.next == similarity.next_step()
    assert ls.Record.of("compare", "title", {"blocks": ls.layer_blocks(similarity)}).next is None


def test_a_result_that_says_nothing_has_no_findings():
    class Named(ls.Result):
        name, provenance = "x", {}
        frame = property(lambda self: pandas.DataFrame())

        def figures(self):
            return []

    record = ls.Record.of("x", "x", {"a": Named()})
    assert record.findings == []
    assert record.next is None
