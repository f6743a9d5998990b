"""Every command that computes something leaves a record that `report` and `figures` can show."""

import json
import shlex

import pytest
from markupsafe import escape

import layerscope as ls
from layerscope.cli.record import writable
from layerscope.errors import InputError
from layerscope.models.fingerprint import fingerprint
from layerscope.reporting.summary import by_weight

QUICK = ["--epochs", 2, "--batch", 8]


COMMANDS = {
    "extract": (["extract"], {"curve", "table"}),
    "compare": (["compare", "--pool", "mean", "--measure", "cka,mutual_knn", "--ci", "0.9"], {"heatmap"}),
    "evaluate": (["evaluate"], {"bars"}),
    "truncate": (["truncate", "--curve"], {"curve", "table"}),
    "cut": (["truncate", "--keep", 2], {"table"}),
    "skip": (["skip", "--map"], {"heatmap", "table"}),
    "advise": (["advise", "--max-span", 1, "--evaluations", 0], {"scatter", "curve", "table"}),
    "specialty": (["specialty"], {"curve", "bars", "table"}),
    "tune": (["tune", "--strategy", "(3, 4, 4)", "--seeds", 2, *QUICK], {"box", "curve", "table"}),
    "study": (["tune", "--study", "--specialty-layer", 3, "--preset", "wu2020", *QUICK], {"scatter", "table"}),
    "strategies": (["strategies", "--specialty-layer", 2], {"table"}),
}


@pytest.mark.parametrize("kind", COMMANDS)
def test_a_command_leaves_a_record_that_can_be_shown(kind, classifier, words, invoke, tmp_path):
    (command, *options), kinds = COMMANDS[kind]
    out = tmp_path / "out"
    done = invoke(command, classifier, "--task", words, *options, "-o", out)
    assert done.exit_code == (3 if kind == "advise" else 0), done.output  # no block of an untrained model can go
    assert f"layerscope report {out}" in done.stderr  # what to do next
    found = ls.read_record(out / f"{kind}-record")
    assert found.kind == kind
    assert {figure.kind for figure in found.figures} == kinds
    for figure in found.figures:
        assert figure.shows
        assert figure.reading or figure.kind == "table"
    assert [m["weights"] for m in found.models] == [fingerprint(ls.load(classifier))]
    assert shlex.split(found.command)[:3] == ["layerscope", command, classifier]
    assert found.versions["layerscope"] == ls.__version__
    assert found.seconds >= 0
    assert found.created.startswith("20")
    if kind != "strategies":
        split = "train" if kind in ("specialty", "tune", "study") else "validation"
        examples = ls.task(str(words)).split(split)
        assert (found.data["split"], found.data["n"]) == (split, len(examples))
        assert found.data["fingerprint"] == examples.fingerprint
    done = invoke("report", out, "-o", tmp_path / "report.html", "--title", "Ours")
    assert done.exit_code == 0, done.output
    assert "The report is" in done.output
    page = (tmp_path / "report.html").read_text()
    assert found.title in page
    if kind not in ("extract", "strategies"):
        told = by_weight(found)
        assert told
        assert escape(told[0].text) in page  # the summary begins with what came out
    if kind != "extract":
        assert {f"{name}.{ending}" for name in found.tables for ending in ("csv", "parquet")} <= set(found.files)
    assert "<title>Ours</title>" in page
    done = invoke("figures", out, "--format", "svg", "--width", "8cm", "-o", tmp_path / "figures")
    assert len(done.stdout.splitlines()) == len(found.figures)


def test_the_values_in_the_folder_are_the_command_s(classifier, words, invoke, tmp_path):
    done = invoke("truncate", classifier, "--task", words, "--curve", "--format", "json", "-o", tmp_path)
    scores = [row["score"] for row in json.loads(done.stdout)["table"]]
    curve, table = ls.read_record(tmp_path / "truncate-record").figures
    assert list(curve.series[0].y) == scores
    assert table.table["score"] == scores
    done = invoke("skip", classifier, "--task", words, "--map", "-o", tmp_path)
    assert f"the whole model scores {scores[-1]:.4f}" in " ".join(done.stdout.split())
    first, second = ls.read_record(tmp_path / "skip-record").figures
    for i, j, score in zip(*(second.table[name] for name in ("first", "last", "score")), strict=True):
        assert first.values[j - 1, i - 1] == score
    done = invoke("report", tmp_path, "-o", tmp_path / "both.html")  # both runs, from the one folder
    assert (tmp_path / "both.html").read_text().count('<section class="record"') == 2


def test_without_o_nothing_is_written(classifier, words, invoke, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert invoke("evaluate", classifier, "--task", words).exit_code == 0
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_told_before_the_work(classifier, words, invoke, tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(ls.LayerscopeError, match="file is a file; give another path"):
        invoke("evaluate", "no/such/model", "--task", words, "-o", tmp_path / "file" / "out")


def test_a_file_s_name_is_not_taken_for_a_folder(words, invoke, tmp_path):
    with pytest.raises(ls.LayerscopeError, match=r"out\.csv is called like a file, .*; give a folder, such as .*out\."):
        invoke("evaluate", "no/such/model", "--task", words, "-o", tmp_path / "out.csv")
    assert not (tmp_path / "out.csv").exists()
    (tmp_path / "data.csv").mkdir()
    assert writable(tmp_path / "data.csv") == tmp_path / "data.csv"
    assert writable(tmp_path / "bert-1.5") == tmp_path / "bert-1.5"


def test_a_second_command_does_not_mix_its_files_with_those_of_the_first(classifier, words, invoke, tmp_path):
    out = tmp_path / "out"
    about = ["compare", classifier, "--task", words, "--pool", "mean", "-o", out, "--measure"]
    assert invoke(*about, "cka").exit_code == 0
    (out / "notes.txt").write_text("mine")
    assert invoke("evaluate", classifier, "--task", words, "-o", out).exit_code == 0  # others may share the folder
    with pytest.raises(
        InputError, match=r"holds a record of `layerscope compare` already \('Similarity.* UTC\).*--overwrite"
    ):
        invoke("compare", "no/such/model", *about[2:], "mutual_knn")  # said before the work
    assert invoke(*about, "mutual_knn", "--overwrite").exit_code == 0
    names = {path.name for path in out.iterdir()}
    assert {"mutual_knn.parquet", "mutual_knn.png", "score.csv", "notes.txt", "evaluate-record"} <= names
    assert not {"cka.parquet", "cka.png"} & names
    assert sorted(ls.read_record(out / "compare-record").tables) == ["mutual_knn"]
    with pytest.raises(InputError, match="--overwrite replaces what an earlier command left"):
        invoke(*about[:-3], "--overwrite")


def test_fewer_seeds_leave_no_old_training_behind(classifier, words, invoke, tmp_path):
    about = ["tune", classifier, "--task", words, *QUICK, "-o", tmp_path / "out", "--seeds"]
    assert invoke(*about, 3).exit_code == 0
    with pytest.raises(InputError, match="--overwrite"):
        invoke(*about, 2)
    assert invoke(*about, 2, "--overwrite").exit_code == 0
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        *("seed-0", "seed-1", "trainings.csv", "trainings.parquet", "trainings.png", "tune-record"),
    ]


def test_what_is_beside_a_record_are_links_into_it(classifier, words, invoke, tmp_path):
    about = ["truncate", classifier, "--task", words, "--curve", "-o", tmp_path / "out"]
    assert invoke(*about).exit_code == 0
    (tmp_path / "out").rename(tmp_path / "moved")
    links = {path.name: path for path in (tmp_path / "moved").iterdir() if path.name != "truncate-record"}
    assert sorted(links) == ["truncation.csv", "truncation.parquet", "truncation.png"]
    assert all(path.is_symlink() and path.stat().st_size for path in links.values())
    assert sorted(ls.read_record(tmp_path / "moved" / "truncate-record").files) == sorted(links)


@pytest.mark.parametrize("listed", [True, False], ids=["of the version before", "of somebody else"])
def test_a_file_in_the_place_of_a_link_is_replaced_only_if_it_is_the_command_s(
    listed, classifier, words, invoke, tmp_path, caplog
):
    about, table = ["truncate", classifier, "--task", words, "--curve", "-o", tmp_path], tmp_path / "truncation.csv"
    if not listed:
        table.write_text("mine")
    assert invoke(*about).exit_code == 0
    if listed:
        for link in [path for path in tmp_path.iterdir() if path.is_symlink()]:
            link.unlink()
            link.write_text("as it was before there were links")
    assert invoke(*about, "--overwrite").exit_code == 0
    written = (tmp_path / "truncate-record" / "truncation.csv").read_text()
    assert table.read_text() == (written if listed else "mine")
    assert ("truncation.csv of" in caplog.text) is not listed
    assert (tmp_path / "truncation.png").is_symlink()


def test_a_file_that_somebody_put_in_the_place_of_one_link_stays(classifier, words, invoke, tmp_path, caplog):
    about, table = ["truncate", classifier, "--task", words, "--curve", "-o", tmp_path], tmp_path / "truncation.csv"
    assert invoke(*about).exit_code == 0
    table.unlink()
    table.write_text("mine")
    assert invoke(*about, "--overwrite").exit_code == 0
    assert table.read_text() == "mine"
    assert "truncation.csv of" in caplog.text
    table.unlink()
    picture = tmp_path / "truncation.png"
    shown = picture.read_bytes()
    picture.unlink()
    picture.write_bytes(shown)  # a copy of what was shown
    assert invoke(*about, "--overwrite").exit_code == 0
    assert picture.is_symlink()
    assert table.is_symlink()


def test_an_output_is_not_called_like_unfinished_work_and_lies_in_none(tmp_path):
    with pytest.raises(InputError, match="those of unfinished work"):
        writable(tmp_path / ".layerscope-notes")
    with pytest.raises(InputError, match="lies in a folder of unfinished work"):
        writable(tmp_path / ".layerscope-0123456789abcdef" / "out")


def test_a_record_does_not_choose_which_folders_go(classifier, words, invoke, tmp_path):
    about = ["truncate", classifier, "--task", words, "--curve", "-o", tmp_path]
    assert invoke(*about).exit_code == 0
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "cat.jpg").write_text("meow")
    card = tmp_path / "truncate-record" / "record.json"
    card.write_text(json.dumps({**json.loads(card.read_text()), "files": ["photos", "truncate-record", "../x", ".."]}))
    assert invoke(*about, "--overwrite").exit_code == 0
    assert (tmp_path / "photos" / "cat.jpg").read_text() == "meow"
    assert ls.read_record(tmp_path / "truncate-record").kind == "truncate"
