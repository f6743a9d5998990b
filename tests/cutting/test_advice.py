"""Advice on a real tuned model: chosen on one half, scored on the other, and equal to brute force."""

import dataclasses
import sys
from types import SimpleNamespace

import numpy as np
import pandas
import pytest
import zoo

import layerscope as ls
from layerscope.cutting.advice import _Greedy, _halves
from layerscope.errors import InputError
from layerscope.evaluation.exam import exam


@pytest.fixture(scope="module")
def found(tmp_path_factory, tuned_minilm):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAYERSCOPE_HOME", str(tmp_path_factory.mktemp("home")))
        return ls.advise(tuned_minilm, "pydocs", tolerance=0.03, limit=200, evaluations=6)


def test_the_choice_is_the_smallest_within_the_tolerance(found):
    table = found.frame
    whole = table.iloc[0]
    assert (whole["removed"], whole["blocks"]) == (0, "1-6")
    enough = table[(table["chosen_on"] >= whole["chosen_on"] - 0.03) & table["savable"]]
    assert found.row["macs"] == enough["macs"].min()
    assert found.choice.removed(6) == tuple(b for b in range(1, 7) if b not in found.choice.keep)
    assert set(table.columns) >= {"score", "low", "high", "parameters", "macs", "latency_1", "latency_32", "front"}
    assert (table["low"] <= table["score"]).all()
    assert (table["score"] <= table["high"]).all()
    assert (table["latency_1"] > 0).all()
    assert table["plan"].is_unique


def test_both_halves_are_those_of_brute_force(found):
    choosing, scoring = _halves(200, 0)
    assert not set(choosing) & set(scoring)
    smaller = exam(ls.load(found.model), "pydocs", limit=200)
    logits = smaller.logits()
    assert found.row["chosen_on"] == pytest.approx(smaller.value(logits, choosing))
    assert found.row["score"] == pytest.approx(smaller.value(logits, scoring))


def test_no_candidate_beats_the_front(found):
    table = found.frame
    for row in table[table["front"]].itertuples():
        better = (table["chosen_on"] >= row.chosen_on) & (table["macs"] < row.macs)
        assert not better.any()


def test_the_advice_can_be_saved_drawn_and_said(found, tmp_path):
    folder = ls.save(found.model, tmp_path / "small", scores=found.score)
    assert ls.load(str(folder)).depth == len(found.choice.keep)
    assert float(found.score) == found.row["score"]
    assert found.score.n == 100
    card = (folder / "README.md").read_text()
    assert f"| {found.row['score']:.4f} | 100 | the half of the rows that did not choose the blocks |" in card
    found.plot(tmp_path / "front.png")
    assert (tmp_path / "front.png").stat().st_size > 1000
    assert str(found).startswith(("Keep blocks", "No block"))


def test_a_model_that_has_learned_nothing_is_said_to_be_one(found):
    assert "Note" not in str(found)
    guessing = dataclasses.replace(found, candidates=found.frame.assign(score=found.exam.majority))
    assert f"no better than one answer to everything ({found.exam.majority:.4f})." in str(guessing)


def test_greedy_search_finds_what_spans_cannot(monkeypatch):
    """Blocks 2 and 4 of five do nothing: only a set with a gap loses both at no cost, and the budget is kept."""
    asked = []

    def answers(exam, plans, title):
        asked.extend(plans)
        return np.asarray([[1.0 - 0.1 * len(set(plan.removed(5)) - {2, 4})] for plan in plans])

    monkeypatch.setattr(sys.modules["layerscope.cutting.advice"], "sweep", answers)
    exam = SimpleNamespace(model=SimpleNamespace(depth=5), value=lambda part, rows: float(part[0]))
    whole = ls.LayerPlan(range(1, 6))
    path = [plan for plan, _ in _Greedy(exam, None, 60).run({whole: np.ones(1)})]
    assert path[1] == ls.LayerPlan([1, 3, 5])
    assert len(asked) == len(set(asked)) == 5 + 4 + 3 + 2
    asked.clear()
    assert len(_Greedy(exam, None, 10).run({whole: np.ones(1)})) == 2
    assert len(asked) == 9


def test_mistakes_are_sentences():
    opened = ls.load(zoo.network("bert"), tokenizer=zoo.tokenizer())
    few = pandas.DataFrame({"text": ["the file"] * 6, "label": [0, 1, 2] * 2})
    with pytest.raises(InputError, match="has 6 rows; advice needs at least 20"):
        ls.advise(opened, few)
    with pytest.raises(InputError, match="tolerance is -1"):
        ls.advise(opened, few, tolerance=-1)
    with pytest.raises(InputError, match=r"evaluations is -1; it must be 0 .* or more"):
        ls.advise(opened, few, evaluations=-1)


def test_what_is_advised_can_be_cut(monkeypatch):
    """Whatever is found out only by cutting is found out before it is advised."""
    from layerscope.cutting import advice as module
    from layerscope.errors import ModelError

    real = module.cut

    def cut(model, plan):
        if len(plan.keep) < 3:
            raise ModelError("no")
        return real(model, plan)

    monkeypatch.setattr(module, "cut", cut)
    frame = pandas.DataFrame({"text": [f"the file {i}" for i in range(24)], "label": np.arange(24) % 3})
    network = zoo.network("gpt2", scale_attn_by_inverse_layer_idx=True)
    found = ls.advise(ls.load(network, tokenizer=zoo.tokenizer("gpt2")), frame, tolerance=1.0, evaluations=0)
    assert found.choice == ls.LayerPlan([1, 2, 3])
    table = found.frame.set_index("blocks")
    assert table.loc["1-3", "savable"]
    assert not table.loc["1, 3-4", "savable"]
    assert found.model.config.n_layer == 3
