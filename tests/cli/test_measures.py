"""`layerscope measures`"""

import json

from layerscope.registry import MEASURES
from tests.helpers.cli import run_here


def test_every_measure_is_listed_with_its_range_and_source():
    rows = json.loads(run_here("measures", "--format", "json").stdout)
    assert {row["name"] for row in rows} == set(MEASURES)
    assert all(row["source"] and row["invariances"] is not None for row in rows)
    assert {row["high"] for row in rows} == {1.0}


def test_a_table_for_people():
    done = run_here("measures")
    assert done.returncode == 0
    assert "svcca" in done.stdout
