"""Small models and small data for commands, and a demo of seconds."""

import sys

import pytest
from typer.testing import CliRunner

from layerscope.cli import app
from tests.helpers.cli import play_demo
from tests.helpers.models import save_random


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    return save_random(tmp_path_factory.mktemp("model"), "bert")


@pytest.fixture
def reviews(tmp_path):
    path = tmp_path / "reviews.csv"
    path.write_text("review,stars\nthe file is good,5\na value,1\nnot this list,1\n")
    return path


@pytest.fixture
def labelled(tmp_path):
    folder = tmp_path / "words"
    folder.mkdir()
    for split, count in (("train", 24), ("validation", 12)):
        rows = [f"the {'file' if i % 2 else 'list'} is {i},{'file' if i % 2 else 'list'}" for i in range(count)]
        (folder / f"{split}.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    return folder


@pytest.fixture(scope="session")
def classifier(tmp_path_factory):
    """A model of two classes, those of `words`."""
    return save_random(tmp_path_factory.mktemp("model"), "bert", labels=2)


@pytest.fixture(scope="session")
def words(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    for split, count in (("train", 48), ("validation", 40)):
        rows = [f"the {'file' if i % 2 else 'list'} is {i},{'file' if i % 2 else 'list'}" for i in range(count)]
        (folder / f"{split}.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    return folder


@pytest.fixture
def invoke(monkeypatch):
    """Run a command in this process; errors are raised."""

    def call(*arguments):
        words = [str(a) for a in arguments]
        monkeypatch.setattr(sys, "argv", ["layerscope", *words])
        return CliRunner().invoke(app, words, catch_exceptions=False)

    return call


@pytest.fixture(scope="session")
def played_once(tmp_path_factory):
    return play_demo(*(tmp_path_factory.mktemp(name) for name in ("model", "out", "store")))


@pytest.fixture
def played(played_once, monkeypatch):
    """A demo of seconds that has ended, with its store."""
    monkeypatch.setenv("LAYERSCOPE_HOME", str(played_once.home))
    return played_once
