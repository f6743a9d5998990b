"""Records as values."""

import numpy as np

import layerscope as ls


def test_a_record_is_made_of_what_its_results_say():
    draw = np.random.default_rng(0).normal
    arrays = [draw(size=(60, 4)) for _ in range(3)]
    similarity, blocks = ls.compare(arrays), ls.blocks(ls.compare(arrays * 2))
    record = ls.Record.of("compare", "title", {"cka": similarity, "blocks": blocks}, settings={"seed": 3, "no": None})
    assert record.findings == blocks.findings()
    assert record.settings == {"seed": 3}
    assert record.data["n"] == 60
    assert record.versions["layerscope"] == ls.__version__
    assert [figure.kind for figure in record.figures] == ["heatmap", "heatmap"]
