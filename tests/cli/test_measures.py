"""`layerscope measures`"""

import json

from command import run_here

from layerscope.similarity.registry import registry


def test_every_measure_is_listed_with_its_range_and_source():
    rows = json.loads(run_here("measures", "--format", "json").stdout)
    assert {row["name"] for row in rows} == set(registry())
    assert all(row["source"] and row["invariances"] is not None for row in rows)
    assert {row["high"] for row in rows} == {1.0}


def test_a_table_for_people():
    done = run_here("measures")
    assert done.returncode == 0
    assert "svcca" in done.stdout
