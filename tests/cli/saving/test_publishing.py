"""`--push-to-hub` of the commands that save."""

import pytest
from huggingface_hub import constants

from tests.helpers.checkpoints import HUB_TOKEN, serve_hub
from tests.helpers.cli import run_here


@pytest.fixture
def hub(tmp_path, monkeypatch):
    with serve_hub(tmp_path / "hub") as (address, _):
        monkeypatch.setattr(constants, "ENDPOINT", address)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setenv("HF_TOKEN", HUB_TOKEN)
        yield tmp_path / "hub" / "models"


def test_commands_that_save_put_it_on_the_hub(hub, classifier, words, tmp_path):
    done = run_here("skip", classifier, "--blocks", "2", "--save", tmp_path / "a", "--push-to-hub", "org/a")
    assert "org/a, private." in done.stdout, done.stderr
    given = ["--task", words, "--save", tmp_path / "b", "--push-to-hub", "org/b", "--public"]
    done = run_here("truncate", classifier, "--keep", "2", *given)
    assert "org/b, for everyone." in done.stdout, done.stderr
    assert "model-index" in (hub / "org" / "b" / "README.md").read_text()
    quick = ["--max-steps", "1", "--batch", "4", "--max-length", "16", "-o", tmp_path / "c"]
    done = run_here("tune", classifier, "--task", words, *quick, "--push-to-hub", "org/c")
    assert done.returncode == 0, done.stderr
    assert "Trained by `finetune`" in (hub / "org" / "c" / "README.md").read_text()


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["skip", "--blocks", "2", "--task", "x", "--push-to-hub", "org/a"], "name a folder to save it in (--save)"),
        (["truncate", "--keep", "2", "--public"], "name that with --push-to-hub"),
        (["tune", "--task", "x", "--push-to-hub", "org/a"], "name a folder to save it in (-o)"),
        (["tune", "--task", "x", "-o", "y", "--seeds", "2", "--push-to-hub", "org/a"], "several were asked for"),
        (["advise", "--task", "x", "--save", "y", "--push-to-hub", "a/b/c"], "not the name of a repository"),
        (["advise", "--task", "x", "--save", "y", "--push-to-hub", "org/a"], "HF_HUB_OFFLINE is set"),
    ],
)
def test_what_cannot_be_put_there_is_said_before_the_work(given, said, classifier, monkeypatch):
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    done = run_here(given[0], classifier, *given[1:])
    assert done.returncode == 2
    assert said in done.stderr
