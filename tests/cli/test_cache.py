"""`layerscope cache`"""

import json

from tests.helpers.cli import run_here
from tests.helpers.jobs import abandoned_staging


def test_an_empty_key_removes_nothing(model, reviews):
    run_here("extract", model, "--task", reviews, "--text", "review")
    done = run_here("cache", "rm", "")
    assert done.returncode == 2
    assert "--all" in done.stderr
    assert len(json.loads(run_here("cache", "ls", "--format", "json").stdout)["table"]) == 1


def test_the_cache_is_listed_verified_and_pruned(model, reviews, home):
    run_here("extract", model, "--task", reviews, "--text", "review")
    listed = json.loads(run_here("cache", "ls", "--format", "json").stdout)["table"]
    assert [r["kind"] for r in listed] == ["representations"]
    assert run_here("cache", "verify").returncode == 0
    shard = next(home.rglob("*.safetensors"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"x")
    done = run_here("cache", "verify")
    assert done.returncode == 1
    assert "does not match its checksum" in done.stdout or "bytes instead of" in done.stdout
    assert "Removed 1 results" in run_here("cache", "rm", listed[0]["key"]).stdout
    assert json.loads(run_here("cache", "ls", "--format", "json").stdout)["table"] == []


def test_what_a_killed_removal_left_is_cleared(home):
    home.mkdir(exist_ok=True)
    left = abandoned_staging(home)
    (left / "gone").mkdir()
    (left / "gone" / "artifact.json").write_text("{}")
    assert run_here("cache", "ls").returncode == 0
    assert not left.exists()


def test_what_is_removed_is_a_table_in_json(model, reviews):
    run_here("extract", model, "--task", reviews, "--text", "review")
    assert json.loads(run_here("cache", "verify", "--format", "json").stdout)["table"][0]["fault"] == "none"
    done = run_here("cache", "rm", "--all", "--format", "json")
    assert done.returncode == 0, done.stderr
    (row,) = json.loads(done.stdout)["table"]
    assert (row["kind"], row["state"]) == ("representations", "done")
    assert json.loads(run_here("cache", "ls", "--format", "json").stdout)["table"] == []
