"""One process alone, the share that each of several has, and the same numbers from two as from one."""

import json
import os
import subprocess

import numpy as np
import pytest
import torch

from layerscope.distributed import Team
from tests.helpers.cli import TWO_PROCESSES
from tests.helpers.data import three_class_frame
from tests.helpers.models import save_random


def test_alone_everything_is_its_own():
    team = Team.current()
    assert (team.rank, team.size, team.is_main) == (0, 1, True)
    assert team.broadcast("x") == "x"
    rows = torch.ones(2)
    assert team.all_reduce(rows) is rows
    assert team.barrier() is None
    assert team.gather("x") == ["x"]
    assert not Team.is_helper()
    assert list(team.share(4)) == [0, 1, 2, 3]


@pytest.mark.parametrize(("count", "size"), [(0, 3), (2, 3), (7, 3), (9, 2)])
def test_every_part_is_somebodys_and_nobody_elses(count, size):
    shares = [list(Team(rank, size).share(count)) for rank in range(size)]
    assert sorted(place for share in shares for place in share) == list(range(count))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_two_processes_are_a_team(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "from layerscope.distributed import Team\n"
        "team = Team.current()\n"
        "Path(f'said-{team.rank}').write_text(str(team.gather(team.rank)))\n"  # lines in one pipe could mix
    )
    subprocess.run([*TWO_PROCESSES, str(script)], cwd=tmp_path, capture_output=True, timeout=300, check=True)
    assert {path.name: path.read_text() for path in tmp_path.glob("said-*")} == {"said-0": "[0, 1]", "said-1": "[0, 1]"}


def test_only_the_first_is_main():
    assert [Team(rank, 3).is_main for rank in range(3)] == [True, False, False]


@pytest.mark.parametrize(("rank", "size", "helper"), [("0", "2", False), ("1", "2", True), ("1", "1", False)])
def test_whether_another_process_speaks(rank, size, helper, monkeypatch):
    monkeypatch.setenv("RANK", rank)
    monkeypatch.setenv("WORLD_SIZE", size)
    assert Team.is_helper() == helper


SCRIPT = """
import json, sys
import layerscope as ls
from layerscope.similarity import budget
from layerscope.similarity.execution_plan import GIB, ExecutionPlan
from layerscope.distributed import Team

def numbers(folder, task):
    model = ls.load(folder)
    about = {"task": task, "pool": "mean", "measure": ["cka", "svcca"]}
    found, choose = {}, budget.choose_plan
    for name, where in (("moments", "host"), ("rows", "host"), ("rows", "store")):
        budget.choose_plan = lambda *_: ExecutionPlan(name, where, 0, GIB, 1, False, 0.0, 0.0)
        for ci in (None, 0.9):
            for measure, similarity in ls.compare(model, ci=ci, **about).items():
                found[f"{measure} from {name} in {where}, {ci}"] = similarity.values.tolist()
                if ci:
                    found[f"{measure} from {name} in {where}, low"] = similarity.low.tolist()
    budget.choose_plan = choose
    found["neighbours"] = ls.compare(model, task=task, pool="mean", measure="mutual_knn").values.tolist()
    for null in (0, 3):
        curve = ls.specialty(model, task, null=null)
        found[f"specialty {null}"] = curve.values.tolist()
    found["p"] = curve.p.tolist()
    score = ls.evaluate(model, task)
    found["evaluate"] = [score, score.n, *score.metrics.values()]
    found["evaluate one"] = [ls.evaluate(model, task, limit=1)]
    found["curve"] = ls.truncation_curve(model, task)["score" if False else "score"].tolist() if False else \
        ls.truncation_curve(model, task).frame["score"].tolist()
    heads = ls.truncation_curve(model, task, mode="tuned", epochs=1, train_limit=40)
    found["heads"] = heads.frame["score"].tolist()
    found["map"] = ls.skip_map(model, task).frame["score"].tolist()
    return found

if __name__ == "__main__":
    folder, task, out = sys.argv[1:4]
    found = numbers(folder, task)
    if Team.current().is_main:
        open(out + ".json", "w").write(json.dumps(found))
    from layerscope.cli import main
    sys.argv = ["layerscope", "evaluate", folder, "--task", task, "-o", out]
    main()
"""


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*the bias is larger than the half-width")
def test_two_processes_give_the_numbers_of_one(tmp_path, monkeypatch):
    """Comparisons by every route, specialty, evaluation, curves and maps."""
    folder = save_random(tmp_path / "model", "bert")
    task = tmp_path / "task"
    task.mkdir()
    for split, count, seed in (("train", 90, 0), ("validation", 61, 1)):
        three_class_frame(count, seed).to_parquet(task / f"{split}.parquet")
    script = tmp_path / "numbers_of.py"
    script.write_text(SCRIPT)
    monkeypatch.syspath_prepend(str(tmp_path))
    from numbers_of import numbers

    expected = numbers(folder, str(task))
    command = [*TWO_PROCESSES, str(script), folder, str(task), str(tmp_path / "out")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "LAYERSCOPE_HOME": str(tmp_path / "shared")}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=500, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    together = json.loads((tmp_path / "out.json").read_text())
    assert together.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_allclose(together[name], values, rtol=1e-4, atol=1e-5, err_msg=name)
    printed = [line for line in done.stdout.splitlines() if line.strip()]
    assert any("accuracy" in line for line in printed)
    assert len(printed) == len(set(printed))  # only one of them prints
    assert (tmp_path / "out" / "evaluate-record").is_dir()
