"""One command for a model of one's own: its parts, its time, its first page, and what is kept."""

import json
import time
from pathlib import Path

import pandas
import pytest

import layerscope as ls
from layerscope.errors import InputError
from layerscope.recipes import study as module
from layerscope.recipes.study import StudyPartRun
from layerscope.recipes.study_page import MOST
from layerscope.recipes.study_subject import Subject, parts
from tests.helpers.data import three_class_frame
from tests.helpers.models import random_model, save_random

pytestmark = pytest.mark.filterwarnings("ignore::layerscope.errors.LayerscopeWarning")


@pytest.fixture(scope="module")
def task():
    return ls.task({"train": three_class_frame(80, 0), "validation": three_class_frame(60, 1)})


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    return tmp_path_factory.mktemp("store")


@pytest.fixture
def studied(finished, store, monkeypatch):
    monkeypatch.setenv("LAYERSCOPE_HOME", str(store))
    return finished


@pytest.fixture(scope="module")
def finished(task, store, tmp_path_factory):
    out = tmp_path_factory.mktemp("study") / "out"
    model, other = (random_model(kind="classifier", seed=seed) for seed in (0, 1))
    model.name, other.name = "mine", "seed-1"
    given = {"base": random_model(), "others": [other], "budget": 30, "max_length": 16, "out": out}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAYERSCOPE_HOME", str(store))
        return model, given, ls.study(model, task, **given)


def test_every_part_is_there_and_the_first_page_goes_on(studied):
    _, _, done = studied
    frame = done.frame.set_index("part")
    assert list(frame.index) == [
        "about",
        "score",
        "changes",
        "layers",
        "cuts",
        "patched",
        "smaller",
        "tuning",
        "other-1",
        "stand_in-1",
    ]
    assert (frame["state"] == "done").all(), frame["note"].tolist()
    assert (frame.drop(index="about")["texts"] == 60).all()
    assert frame.loc["about", "texts"] == 0  # it reads none
    findings = done.findings()
    assert 3 <= len(findings) <= MOST
    assert any("mine has accuracy" in str(finding) for finding in findings)
    page = (done.folder / "report.html").read_text()
    assert all(finding.text[:40] in page for finding in findings[:1])
    assert all(command.startswith("layerscope ") for command in done.commands.values())
    assert [line.split()[1] for line in done.commands.values()] == ["skip", "heal", "tune"]
    for name in done.records:
        assert ls.read_record(done.folder / "parts" / name).tables


def test_the_same_study_goes_on_where_it_was(studied, task):
    model, given, first = studied
    again = ls.study(model, task, **given)
    assert (again.frame["state"] == "kept from before").all()
    assert again.frame["texts"].tolist() == first.frame["texts"].tolist()
    assert [str(each) for each in again.findings()] == [str(each) for each in first.findings()]
    assert again.records == first.records
    plan = json.loads((given["out"] / "study.json").read_text())
    plan["texts"].pop("layers")
    plan["searches"].pop("layers")
    plan["seconds"].pop("layers")
    plan["budgets"].pop("layers")
    (given["out"] / "study.json").write_text(json.dumps(plan))  # as if it had been stopped there
    states = ls.study(model, task, **given).frame.set_index("part")["state"]
    assert states.pop("layers") == "done"
    assert (states == "kept from before").all()


def test_more_budget_sizes_reduced_parts_anew(tmp_path, monkeypatch):
    """In a folder where less was read before; with less or the same budget everything is kept."""
    task = ls.task({"train": three_class_frame(200, 0), "validation": three_class_frame(200, 1)})
    monkeypatch.setattr(Subject, "pilot", lambda self, most: 0.01)
    given = {"max_length": 16, "out": tmp_path / "out"}
    model = random_model(kind="classifier")
    few = ls.study(model, task, budget=0.2, **given).frame.set_index("part")
    some = [name for name in few.index if "a sample of" in few.loc[name, "note"]]
    assert "changes" not in few.index
    assert "score" in few.index[few["state"] == "done"]
    assert some
    kept = ls.study(model, task, budget=0.2, **given).frame.set_index("part")
    done = few.index[few["state"] == "done"]
    assert (kept.loc[done, "state"] == "kept from before").all()
    more = ls.study(model, task, budget=30, **given).frame.set_index("part")
    assert (more["texts"].drop("about") == 200).all()
    assert (more.loc[some, "state"] == "done").all()
    assert more.loc["about", "state"] == "kept from before"
    again = ls.study(model, task, budget=0.2, **given).frame.set_index("part")
    assert (again["texts"] == more["texts"]).all()
    assert (again["state"] == "kept from before").all()


def test_a_sample_is_of_the_whole_split_and_is_told(tmp_path):
    frame = three_class_frame(200, 1).sort_values("label", kind="stable")  # as a file that is sorted by label
    model = random_model(kind="classifier")
    done = ls.study(model, ls.task(frame), budget=30, limit=60, max_length=16, out=tmp_path / "out")
    notes = done.frame.set_index("part")["note"]
    assert notes["score"] == "a sample of 60 of 200 texts"
    assert any("a sample of 60 of 200 texts" in str(each) for each in done.findings())
    page = (tmp_path / "out" / "report.html").read_text()
    assert "This part read a sample of 60 of 200 texts, drawn with every class in proportion" in page
    scored = ls.evaluate(model, ls.task(frame).sampled(0), limit=60, max_length=16)
    recorded = ls.read_record(done.folder / "parts" / "score").tables["score"]["score"].iloc[0]
    assert recorded == pytest.approx(float(scored))
    first = ls.task(frame).split(limit=60)
    assert len(set(first.labels.tolist())) < 3
    assert len(set(ls.task(frame).sampled(0).split(limit=60).labels.tolist())) == 3


def test_parts_with_too_little_time_are_gone_over_again(task, tmp_path, monkeypatch):
    """Shares are fixed, and what others leave of theirs is given to the rest; the score comes first."""
    monkeypatch.setattr(Subject, "pilot", lambda self, most: 0.05)
    done = ls.study(random_model(kind="classifier"), task, budget=0.25, max_length=16, out=tmp_path / "out")
    states = done.frame.set_index("part")["state"]
    assert states["score"] == "done"
    assert (states == "done").sum() > 3
    work = module._Work(
        done_subject(task),
        module.PlanCard(key="", texts={}, searches={}, seconds={}, budgets={}),
        tmp_path,
        "local",
        10.0,
        time.monotonic(),
        0.05,
    )
    score = parts()[1]
    assert work.size(score, "score", None, 0.5, 0.5) is None
    assert work.too_little["score"].endswith("which is too little for 40 texts")
    assert work.size(score, "score", None, 0.5, 9.0) == (40, 0)


def done_subject(task):
    return Subject(random_model(kind="classifier"), task, None, [], 0.01, None, None, 16, 0)


def test_what_there_is_no_time_for_is_left_out_by_name(task, tmp_path):
    frame = ls.study(random_model(kind="classifier"), task, budget=0.01, max_length=16, out=tmp_path / "out").frame
    row = frame.set_index("part").loc["smaller"]
    assert row["state"] == "left out"
    assert "which is too little for 40 texts" in row["note"]
    assert (tmp_path / "out" / "report.html").is_file()


def test_language_models_have_a_twin_and_no_labels(tmp_path):
    folder = save_random(tmp_path / "lm", "gpt2", "next")
    texts = ls.task(pandas.DataFrame({"text": [f"the file is a list of value {k} and this string" for k in range(60)]}))
    done = ls.study(str(folder), texts, budget=10, max_length=16, out=tmp_path / "out")
    states = done.frame.set_index("part")["state"]
    assert {"score", "untrained", "layers", "cuts", "smaller"} <= set(states.index)
    assert not {"tuning", "changes"} & set(states.index)
    assert (states == "done").all(), done.frame["note"].tolist()


def test_bare_encoders_are_looked_at_and_not_scored(task, tmp_path):
    done = ls.study(random_model(), task, budget=10, max_length=16, out=tmp_path / "out")
    assert set(done.frame["part"]) == {"about", "layers", "tuning"}


def test_the_base_is_the_one_that_the_card_names(tmp_path):
    base = Path(save_random(tmp_path / "base", "bert"))
    tuned = Path(save_random(tmp_path / "tuned", "bert", "classifier", seed=1))
    (tuned / "README.md").write_text(f"---\nbase_model: {base}\n---\n")
    found = module._base_of(ls.load(tuned))
    assert found is not None
    assert found.spec() == ls.load(base).spec()
    (tuned / "README.md").write_text("---\nbase_model: [1, {}]\n---\n")
    assert module._base_of(ls.load(tuned)) is None


def test_keys_of_parts_follow_everything_that_they_are_given(task):
    part = next(part for part in parts() if part.name == "layers")
    values = {
        "model": random_model(),
        "task": task,
        "pool": "mean",
        "seed": 0,
        "reading": {"limit": 20, "max_length": 16},
    }
    key = StudyPartRun(part, values).key
    for changed in (
        {"model": random_model(seed=1)},
        {"task": ls.task(three_class_frame(60, 5))},
        {"pool": "cls"},
        {"seed": 1},
        {"reading": {"limit": 21, "max_length": 16}},
    ):
        assert StudyPartRun(part, {**values, **changed}).key != key
    assert StudyPartRun(part, {**values, "tolerance": 0.5}).key == key


@pytest.mark.parametrize("budget", [0, -1, float("nan"), float("inf")])
def test_a_budget_is_minutes(task, budget):
    with pytest.raises(InputError, match="give the minutes"):
        ls.study(random_model(), task, budget=budget)
