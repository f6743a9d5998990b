"""`layerscope specialty`"""

import json
import re
import shlex

import pytest

from layerscope.errors import InputError
from tests.helpers.cli import run_here


def test_specialty_on_the_command_line(model, labelled, tmp_path):
    done = run_here("specialty", model, "--task", labelled, "--no-probes", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    assert "Next: layerscope tune" in done.stdout
    assert {p.name for p in (tmp_path / "out").iterdir()} == {
        *("specialty.csv", "specialty.parquet", "specialty.png", "specialty-record"),
    }


def test_the_recommended_command_can_be_run_as_it_stands(model, tmp_path):
    rows = [f"the {'file' if i % 2 else 'list'} is {i},{'file' if i % 2 else 'list'}" for i in range(60)]
    (tmp_path / "data.csv").write_text("words,kind\n" + "\n".join(rows) + "\n")
    given = ["--task", tmp_path / "data.csv", "--text", "words", "--label", "kind"]
    done = run_here("specialty", model, *given, "--no-probes")
    assert done.returncode == 0, done.stderr
    expected = shlex.join(map(str, ["layerscope", "tune", model, *given]))
    assert expected in done.stdout


def test_robustness_of_specialty_on_the_command_line(model, labelled, tmp_path):
    asked = ["--imbalance", "0.5,0.3", "--scarcity", "8", "--pools", "mean,cls", "--tuned", model]
    done = run_here(
        "specialty", model, "--task", labelled, "--no-probes", *asked, "-o", tmp_path / "out", "--format", "json"
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    settings = {(name, row["setting"]) for name, rows in said["more"].items() for row in rows}
    assert ("imbalance", "p = 0.3") in settings
    assert ("scarcity", "N = 8") in settings
    assert ("pools", f"{model}, cls") in settings
    names = {p.stem for p in (tmp_path / "out").iterdir()}
    assert names == {"specialty", "imbalance", "scarcity", "pools", "specialty-record"}
    wrong = run_here("specialty", model, "--task", labelled, "--no-probes", "--imbalance", "half")
    assert wrong.returncode != 0
    assert "several with commas: 0.5,0.25,0.1" in wrong.stderr


def test_other_measures_and_the_papers_probe(model, words, tmp_path):
    asked = ["--probe", "head", "--measures", "numerical_rank,nuclear_norm,mutual_information", "--null", 20]
    more = ["--imbalance", "0.5,0.3", "--imbalance-size", 30]
    done = run_here("specialty", model, "--task", words, *asked, *more, "--format", "json", "-o", tmp_path / "out")
    assert done.returncode == 2  # 48 texts are too few for ten folds
    assert "Mutual information needs at least 50 rows for 10 folds; there are 48" in done.stderr
    asked[3] = "numerical_rank,nuclear_norm"
    done = run_here("specialty", model, "--task", words, *asked, *more, "--format", "json", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    layers = said["table"]
    assert set(layers[0]) >= {"nu", "null", "ratio", "p", "probe", "probe_low", "numerical_rank", "nuclear_norm"}
    assert {row["n"] for row in said["more"]["imbalance"]} == {30}
    names = {path.stem for path in (tmp_path / "out").iterdir()}
    assert names == {"specialty", "numerical_rank", "nuclear_norm", "imbalance", "specialty-record"}


def test_what_cannot_be_asked_of_specialty_is_a_sentence(model, words):
    for more, message in (
        (["--measures", "label_ca"], "no measure 'label_ca'; allowed: label_cca, numerical_rank"),
        (["--probe", "tree"], "no kind of probe 'tree'; allowed: linear, head"),
        (["--null", 5], "null is 5; at least 20 permutations"),
        (["--imbalance-size", 30], "imbalance_size is the size of the sets of imbalance (--imbalance)"),
    ):
        done = run_here("specialty", model, "--task", words, "--no-probes", *more)
        assert done.returncode == 2
        assert message in done.stderr


def test_a_network_that_cannot_be_tuned_has_nu_and_probes_and_no_strategy(labelled, tmp_path):
    from layerscope.models.elmo import Elmo, ElmoOptions
    from layerscope.models.elmo_files import write_folder

    options = {
        "char_cnn": {"filters": [[1, 4]], "n_highway": 1, "embedding": {"dim": 4}},
        "lstm": {"projection_dim": 4, "dim": 8, "n_layers": 2},
    }
    write_folder(Elmo(ElmoOptions.model_validate(options)), tmp_path / "elmo")
    done = run_here("specialty", tmp_path / "elmo", "--task", labelled, "-o", tmp_path / "out", "--format", "json")
    assert done.returncode == 0, done.stderr
    rows = json.loads(done.stdout)["table"]
    assert [row["layer"] for row in rows] == [0, 1, 2]
    assert all(row["nu"] > 0 and 0 <= row["probe"] <= 1 for row in rows)
    assert (tmp_path / "out" / "specialty-record").is_dir()
    refused = run_here("specialty", tmp_path / "elmo", "--task", labelled, "--scarcity", "8")
    assert refused.returncode == 2
    assert "are for models that can be tuned" in refused.stderr


def test_l_is_one_and_the_strategy_is_in_numbers(model, words):
    done = run_here("specialty", model, "--task", words)
    assert done.returncode == 0, done.stderr
    best = re.search(r"above 0, is (\d)", done.stdout)[1]
    assert f"Strategies around l* = {best}" in done.stdout
    assert f"l*, the layer of the least nu, is {best}." in done.stdout
    strategy = re.search(r"The recommended strategy is (\(\d, \d, \d\))", done.stdout)[1]
    assert f"--strategy '{strategy}'" in done.stdout
    table = run_here("strategies", model, "--task", words)
    assert f"({best}, {best}, {best})" in table.stdout
    assert f"l* is {best}" in table.stderr


def test_models_run_over_the_texts_where_they_are_asked_to(model, labelled, invoke, posted):
    given = ["specialty", model, "--task", labelled, "--no-probes", "--null", "20", "--engine", "posted"]
    assert invoke(*given, "--pools", "mean,cls").exit_code == 0
    assert [name.split(" of ")[0] for name in posted] == ["mean states", "cls states", "cls states"]  # one is there
    with pytest.raises(InputError, match=r"engine='posted' \(--engine\) is for several pools or models"):
        invoke(*given)
