"""Ranking of models by PRESS of their best layers: paired ties, equal width, costs."""

import numpy as np
import pytest

import layerscope as ls
from layerscope.errors import InputError
from layerscope.results import Result
from layerscope.tuning.rank import Ranking
from tests.helpers.data import three_class_frame
from tests.helpers.models import random_model, random_network, word_tokenizer


@pytest.fixture(scope="module")
def words():
    return ls.task({"train": three_class_frame(120, 0), "validation": three_class_frame(20, 1)})


@pytest.fixture(scope="module")
def models():
    wide = ls.load(random_network("bert", "encoder", hidden_size=64, intermediate_size=64), tokenizer=word_tokenizer())
    return [random_model(), wide]


@pytest.fixture(scope="module")
def ranking(models, words):
    return ls.rank([*models, models[0]], words)


def test_every_model_has_its_best_layer_and_its_costs(ranking, models, words, tmp_path):
    frame = ranking.frame
    assert isinstance(ranking, Result)
    assert list(frame["press"]) == sorted(frame["press"], reverse=True)
    assert ranking.best == frame["model"][0]
    for row in frame.to_dict("records"):
        curve = ranking.curves[row["model"]]
        assert row["layer"] == curve.best
        assert row["press"] == curve.values[curve.best]
        assert row["low"] < row["press"] < row["high"]
        assert row["latency_1_ms"] > 0
        assert row["parameters"] > 1000
    assert set(frame["width"]) == {model.width for model in models}
    own = ls.layer_scores(models[0], ["press"], task=words)["press"]
    same = [curve for name, curve in ranking.curves.items() if curve.values.tolist() == own.values.tolist()]
    assert len(same) == 2
    assert len(ranking.figures()) == 4
    assert ranking.save(tmp_path / "ranking.parquet").is_file()
    assert ranking.next_step().models == (ranking.best,)
    assert repr(ranking).startswith("Ranking(of 3 models: ")


def test_a_model_ties_with_itself_and_equal_width_is_that_of_the_narrowest(ranking, models):
    frame = ranking.frame.set_index("model")
    narrow = frame[frame["width"] == models[0].width]
    assert narrow["ties"].nunique() == 1
    assert ranking.axes == models[0].width
    np.testing.assert_allclose(narrow["equal_width"], narrow["press"], rtol=1e-9)  # all of its axes
    wide = frame[frame["width"] == models[1].width]
    assert abs(float(wide["equal_width"].iloc[0]) - float(wide["press"].iloc[0])) > 1e-6
    assert any("principal axes of each best layer" in finding.text for finding in ranking.findings())


def test_findings_say_which_models_cannot_be_told_apart(ranking):
    frame = ranking.frame.assign(ties=[True, True, False])
    names = list(frame["model"])
    told = Ranking(frame, ranking.provenance, ranking.curves, ranking.axes).findings()
    assert told[0].text.startswith(f"The labels show in layer {frame['layer'][0]} of {names[0]}: PRESS is")
    assert told[1].text == f"These models cannot be told apart with these rows: {names[0]} and {names[1]}."
    assert told[1].sure is False
    alone = Ranking(frame.assign(ties=[True, False, False]), {}, ranking.curves, ranking.axes).findings()[1]
    assert (alone.text, alone.sure) == (f"{names[0]} is better than every other model.", True)
    nothing = Ranking(frame.assign(press=np.nan), {}, ranking.curves, ranking.axes).findings()
    assert nothing[0].text == "PRESS has no value in any layer of these models."


def test_numbers_one_model_and_none(words):
    numbers = three_class_frame(60, 0)
    ranking = ls.rank([random_model()], numbers.assign(label=numbers["label"] + 0.5), timed=False, null=0)
    assert ranking.frame["ties"].tolist() == [True]
    assert np.isnan(ranking.frame["latency_1_ms"][0])
    assert len(ranking.findings()) == 1
    with pytest.raises(InputError, match="No model was given"):
        ls.rank([], words)
