"""`layerscope measures`"""

import json
import math

from layerscope.registry import MEASURES
from tests.helpers.cli import run_here


def test_every_measure_is_listed_with_its_range_and_source():
    rows = json.loads(run_here("measures", "--format", "json").stdout)["table"]
    assert {row["name"] for row in rows} == set(MEASURES)
    assert all(row["source"] and row["invariances"] is not None for row in rows)
    assert {row["high"] for row in rows} == {1.0, 2.0, math.pi, None}  # JSON has no infinity
    assert next(row["metric"] for row in rows if row["name"] == "procrustes_angular") is True


def test_a_table_for_people():
    done = run_here("measures")
    assert done.returncode == 0
    assert "svcca" in done.stdout
