"""`layerscope tasks`"""

import json

from command import run_here


def test_tasks(reviews):
    names = {r["name"] for r in json.loads(run_here("tasks", "--format", "json").stdout)}
    assert {"sst2", "pydocs", "ewt-genre"} <= names
    splits = json.loads(run_here("tasks", reviews, "--format", "json").stdout)
    assert splits[0]["examples"] == 3
