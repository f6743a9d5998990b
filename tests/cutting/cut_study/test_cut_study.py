"""Cut, score and save in one call."""

import pytest

import layerscope as ls
from layerscope.errors import InputError
from tests.helpers.data import random_texts
from tests.helpers.models import SMALL_LLAMA, save_random


@pytest.fixture
def folder(tmp_path):
    save_random(tmp_path / "model", "llama", "next", **SMALL_LLAMA)
    return tmp_path / "model"


@pytest.fixture
def texts(tmp_path):
    (tmp_path / "corpus.txt").write_text("\n".join(random_texts(40)))
    return ls.task(tmp_path / "corpus.txt", kind="text")


def test_the_cut_model_stands_beside_the_whole(folder, texts, tmp_path):
    study = ls.cut_study(str(folder), "without 2", texts, save=tmp_path / "smaller", max_length=16)
    whole, smaller = study.frame.to_dict("records")
    assert float(ls.evaluate(str(folder), texts, max_length=16)) == pytest.approx(whole["score"])
    assert float(ls.evaluate(str(tmp_path / "smaller"), texts, max_length=16)) == pytest.approx(smaller["score"])
    assert smaller["parameters"] < whole["parameters"]
    assert 2 not in study.plan.keep
    assert (study.saved, study.how[:11]) == (tmp_path / "smaller", "cut on disk")
    assert study.model.config.num_hidden_layers == study.depth - 1
    opened = ls.cut_study(ls.load(str(folder)), "without 2", texts, save=tmp_path / "other", max_length=16)
    assert (opened.how, opened.frame.to_dict()) == ("reopened and compared", study.frame.to_dict())
    assert study.figures()[0].title == "The cut model beside the whole"


def test_without_a_task_a_folder_is_cut_on_disk(folder, tmp_path):
    study = ls.cut_study(str(folder), ls.LayerPlan([1]), save=tmp_path / "smaller")
    assert study.how.startswith("cut on disk, every tensor compared by its hash")
    assert study.model is None
    assert ls.load(str(tmp_path / "smaller")).depth == 1
    opened = ls.cut_study(ls.load(str(folder)), "first 1", save=tmp_path / "other")
    assert opened.how == "cut in memory (it is open in float32), reopened and compared"
    assert ls.load(str(tmp_path / "other")).spec() == ls.load(str(tmp_path / "smaller")).spec()


def test_plans_in_words_that_no_model_can_have(folder):
    for words, message in (
        ("without 9", "Block 9 was to be left out"),
        ("first many", "names no number of blocks"),
        ("last 2", "There is no plan in words 'last'"),
        ("without 3-1", "runs backwards"),
    ):
        with pytest.raises(InputError, match=message):
            ls.cut_study(str(folder), words)
