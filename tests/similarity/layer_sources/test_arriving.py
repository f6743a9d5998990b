"""Rows arrive stored or streamed, and give the same."""

import sys

import numpy as np

import layerscope as ls
from tests.helpers.models import random_model


def test_moments_of_stored_rows_do_not_depend_on_the_block(reps, monkeypatch, tmp_path):
    expected = ls.compare(reps, measure="cka").values
    monkeypatch.setattr(sys.modules["layerscope.similarity.layer_sources"], "BLOCK", 7)
    np.testing.assert_allclose(ls.compare(reps, measure="cka").values, expected, atol=1e-6)
    loaded = ls.Representations.load(reps.save(tmp_path / "reps"))
    np.testing.assert_allclose(ls.compare(loaded, measure="cka").values, expected, atol=1e-6)


def test_the_pool_is_known_however_rows_are_got(task):
    one = random_model("bert")
    streamed = ls.compare(one, task=task, pool="mean", max_length=20)
    kept = ls.compare(one, task=task, pool="mean", max_length=20, baseline=True)
    rows = ls.compare(ls.extract(one, task, pool="mean", max_length=20))
    for found in (streamed, kept, rows):
        assert {found.provenance["settings"][name] for name in ("pool", "max_length")} == {"mean", 20}
    mixed = ls.compare(ls.extract(one, task, pool="mean"), ls.extract(one, task, pool="cls"))
    assert "pool" not in mixed.provenance["settings"]
