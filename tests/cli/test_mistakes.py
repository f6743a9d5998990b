"""Mistakes on the command line are one sentence and exit code 2."""

import errno

import pytest

import layerscope as ls
from layerscope.store.atomic import remember
from tests.helpers.cli import run, run_here
from tests.helpers.jobs import abandoned_staging


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["extract", "/no/such", "--task", "pydocs"], "There is no folder '/no/such'"),
        (["extract", "MODEL", "--task", "sst-2"], "Did you mean 'sst2'"),
        (["extract", "MODEL", "--task", "REVIEWS", "--text", "body"], "no column 'body' for the text"),
        (["extract", "MODEL", "--task", "REVIEWS", "--pool", "max"], "no pool 'max'"),
        (["extract", "MODEL", "--task", "REVIEWS", "--layers", "a-b"], "not a list of numbers"),
        (["cache", "rm"], "Nothing was named to remove"),
        (["cache", "rm", "abc"], "No stored result"),
        (["cache", "rm", "--all", "--kind", "fun"], "No stored result is of the kind 'fun'"),
    ],
)
def test_a_mistake_is_a_sentence_not_a_traceback(arguments, sentence, model, reviews):
    done = run_here(*[{"MODEL": model, "REVIEWS": reviews}.get(a, a) for a in arguments])
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert sentence in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    "arguments",
    [["extract", "demo:minilm"], ["extract", "m", "--task", "t", "--limit", "abc"], ["nosuch"], ["tasks", "--nosuch"]],
    ids=" ".join,
)
def test_a_usage_error_is_explained(arguments):
    done = run_here(*arguments)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    assert "Usage: " in done.stderr


def test_places_that_cannot_be_written_are_a_sentence(model, reviews, tmp_path):
    (tmp_path / "file").write_text("x")
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "cat.jpg").write_text("meow")
    for out, sentence in ((tmp_path / "file" / "x", "cannot be written"), (photos, "is not overwritten")):
        done = run_here("extract", model, "--task", reviews, "--text", "review", "-o", out)
        assert done.returncode == 2
        assert sentence in done.stderr
        assert "Traceback" not in done.stderr
    done = run("extract", model, "--task", reviews, "--text", "review", LAYERSCOPE_HOME=str(tmp_path / "file"))
    assert done.returncode == 2
    assert "LAYERSCOPE_HOME" in done.stderr
    done = run_here("extract", model, "--task", reviews, "--text", "review", "--device", "warp")
    assert "error: The device 'warp' cannot be used here" in done.stderr


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "The disk is full"),
        (OSError(errno.EFBIG, "File too large"), "The disk is full"),
        (RuntimeError("I/O error: File too large (os error 27)"), "The disk is full"),
        (OSError(errno.ENAMETOOLONG, "File name too long", "x" * 300), "x" * 100 + " .. cannot be"),
        (RuntimeError("I/O error: No space left on device (os error 28)"), "The disk is full"),
        (OSError(errno.EROFS, "Read-only file system", "out/cka.png"), "out/cka.png may not be read or written"),
    ],
)
def test_what_a_disk_refuses_is_a_sentence(error, sentence, monkeypatch):
    def refuse(_):
        raise error

    monkeypatch.setattr("layerscope.cli.app", refuse)
    done = run_here("compare")
    assert done.returncode == (1 if sentence == "The disk is full" else 2)
    assert done.stderr.startswith(f"error: {sentence}")


def test_any_command_clears_what_a_killed_one_left_anywhere(tmp_path):
    (tmp_path / "out").mkdir()
    left = abandoned_staging(tmp_path / "out")
    remember(left.parent)
    assert run_here("measures", "--help").returncode == 0
    assert left.exists()
    assert run_here("measures").returncode == 0
    assert not left.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["truncate"], "Give either --keep K"),
        (["truncate", "--curve", "--keep", "2"], "Give either --keep K"),
        (["truncate", "--curve", "--save", "x"], "--save needs --keep"),
        (["truncate", "--keep", "9"], "blocks 1..4"),
        (["skip"], "Give either --blocks"),
        (["skip", "--blocks", "3-9"], "Block 5 was to be left out"),
        (["evaluate"], "column that holds them"),
        (["evaluate", "--label", "stars"], "has 2 classes, and the head"),
        (["skip", "--blocks", "2", "--max-span", "2"], "--max-span bounds the spans of --map"),
        (["advise", "--evaluations", "-1"], "evaluations is -1"),
        (["advise", "--seed", "-1"], "seed is -1"),
    ],
)
def test_mistakes_in_cutting_are_sentences(arguments, message, model, reviews):
    command, *rest = arguments
    done = run_here(command, model, "--task", reviews, *rest)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["extract", "--special"], "special=True is for the pools mean and tokens"),
        (["extract", "--subword", "first"], "subword='first' is for the pool words"),
        (["compare", "--measure", ","], "No measure was named in ','"),
        (["compare", "--heads", "1,2", "-o", "out"], "--heads is for measures by attention head"),
        (["align", "--target-layers", "every", "--pairs", "3"], "leave it out, or give --study"),
        (
            ["align", "--target-layers", "every", "--methods", "linear", "--start", "plain"],
            "--start plain is for inn",
        ),
        (
            ["align", "--target-layers", "every", "--methods", "linear", "--pad"],
            "--pad is for identity, procrustes and inn",
        ),
        (["specialty", "--scarcity", "few"], "'few' is not a list of numbers"),
        (["specialty", "--pools", "mean,max"], "no pool 'max'"),
        (["specialty", "--label", "stars", "--seed", "-1"], "seed is -1"),
    ],
    ids=" ".join,
)
def test_options_that_would_be_ignored_are_refused(arguments, message, model, reviews, tmp_path):
    command, *rest = [str(tmp_path / a) if a == "out" else a for a in arguments]
    done = run_here(command, model, "--task", reviews, "--text", "review", *rest)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--seeds", "2", "--seed", "5"], "Both seed (--seed) 5 and seeds (--seeds) 2"),
        (["--study", "--strategy", "top-2"], "leave out --strategy"),
        (["--method", "lora,adapter"], "give one, or --study"),
        (["-o", "PHOTOS"], "is not overwritten"),
    ],
    ids=" ".join,
)
def test_mistakes_in_tuning_are_found_before_the_work(arguments, sentence, model, labelled, tmp_path, home):
    photos = tmp_path / "photos"
    photos.mkdir()
    (photos / "cat.jpg").write_text("meow")
    done = run_here("tune", model, "--task", labelled, *[photos if a == "PHOTOS" else a for a in arguments])
    assert done.returncode == 2
    assert sentence in done.stderr
    assert done.stdout == ""
    assert not list(home.rglob("record.json"))


@pytest.mark.parametrize(
    "arguments",
    [
        ["truncate", "MODEL", "--keep", "1", "--save", "OUT"],
        ["skip", "MODEL", "--blocks", "2", "--save", "OUT"],
        ["truncate", "MODEL", "--keep", "1", "--save", "OUT", "--task", "DATA"],
        ["advise", "MODEL", "--task", "DATA", "--save", "OUT"],
        ["heal", "MODEL", "--without", "2", "--task", "DATA", "-o", "OUT"],
        ["tune", "MODEL", "--task", "DATA", "-o", "OUT"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("inside", ["", "small"])
def test_no_command_writes_over_the_model_that_it_reads(arguments, inside, model, labelled, tmp_path):
    saved = ls.save(ls.truncate(model, 2), tmp_path / "saved")
    (tmp_path / "link").symlink_to(saved)
    words = {"MODEL": saved, "OUT": tmp_path / "link" / inside, "DATA": labelled}
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    done = run_here(*(words.get(word, word) for word in arguments))
    assert done.returncode == 2, done.stderr
    assert "the folder of the model that is read" in done.stderr
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before
