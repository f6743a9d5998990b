"""The regret of rules: every plan is evaluated, in chunks that a killed run goes on from, and compared rightly."""

import argparse
import itertools
import json

import numpy as np
import pytest

import layerscope as ls
from tests.helpers.cli import ROOT, script
from tests.helpers.data import random_texts
from tests.helpers.models import language_model

regret, pages = (script(f"docs/results/{name}.py") for name in ("cut_regret", "language_models_page"))


@pytest.fixture
def options(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n\n".join("\n".join(random_texts(30, seed=seed)) for seed in range(20)))
    return argparse.Namespace(
        **{"text": path, "texts": 10, "choosing_texts": 8, "tokens": 256, "choosing_tokens": 128, "window": 32},
        **{"sizes": [2], "batch_tokens": None, "dtype": "float32", "seconds": None, "out": tmp_path},
        **{"questions": 2, "cuts": ["2-3"], "beside": [], "patch": None, "patch_tokens": 2048},
    )


@pytest.fixture
def opened(monkeypatch):
    model = language_model("llama", num_hidden_layers=5, max_position_embeddings=400)
    monkeypatch.setattr(regret.ls, "load", lambda *_, **__: model)
    return model


def test_regret_is_over_every_plan_and_on_texts_that_did_not_choose(options, opened):
    found = regret.measured("tiny", "tiny", options)
    own = found["sizes"]["2"]
    assert own["plans"] == 10
    texts = regret.articles(options.text)
    task = regret.of_articles(regret.first_tokens(texts[:10], opened.tokenizer, 256))
    every = {}
    for gone in itertools.combinations(range(1, 6), 2):
        cut = ls.cut(opened, regret.without(gone, 5))
        every[regret.spelled(list(gone))] = ls.evaluate(cut, task, max_length=32, metric="nll", all_rows=True)
    best = min(every, key=every.__getitem__)
    assert own["best"] == best
    rules = {row["rule"]: row for row in own["rules"]}
    assert {"greedy", "swap", "beam", "spans", "angular", regret.BOUNDARY, regret.MIDDLE} <= rules.keys()
    for row in rules.values():
        assert row["nll"] == pytest.approx(every[row["removed"]], rel=1e-5)
        assert row["regret"] == pytest.approx(every[row["removed"]] - every[best], abs=1e-5)
        assert row["rank"] == 1 + sum(value < every[row["removed"]] - 1e-6 for value in every.values())
        assert row["low"] - 1e-6 <= row["regret"] <= row["high"] + 1e-6
    # With evaluations for all, a wide beam finds on the texts that choose what is best there.
    assert rules["beam"]["removed"] == rules[regret.BOUNDARY]["removed"]
    page = "\n".join(pages.regrets({"tiny": json.loads(json.dumps({"regret": found}))}))
    assert f"the best of all leaves out {best} " in page.replace("\n", " ")
    assert page.count("\n| ") == len(rules) + 2  # with the head and the line below it


def test_a_run_whose_time_is_over_goes_on(options, opened, monkeypatch):
    evaluated = []
    monkeypatch.setattr(regret, "AT_ONCE", 4)
    monkeypatch.setattr(regret, "proposed", lambda *_: {})
    monkeypatch.setattr(
        regret, "losses", lambda evaluator, plans, title: evaluated.extend(plans) or np.arange(len(plans)) + 1.0
    )
    options.seconds = 1e-9
    assert regret.measured("tiny", "tiny", options) is None
    assert len(evaluated) == 2 * 4  # on both texts
    options.seconds = None
    monkeypatch.setattr(regret, "intervals", lambda _, plans: [(0.0, 1.0)] * len(plans))
    assert regret.measured("tiny", "tiny", options)["sizes"]["2"]["plans"] == 10
    assert len(evaluated) == 2 * (1 + 10)
    assert len(set(evaluated)) == 1 + 10
    options.window = 16  # another question: nothing of it is known
    evaluated.clear()
    regret.measured("tiny", "tiny", options)
    assert len(evaluated) == 2 * (1 + 10)


@pytest.mark.filterwarnings("ignore::layerscope.errors.LayerscopeWarning")
def test_patched_plans_are_scored_on_texts_that_no_patch_was_solved_on(options, opened, tmp_path, monkeypatch):
    monkeypatch.setattr(regret, "proposed", lambda *_: {})
    monkeypatch.setattr(regret, "PATCHED_BEST", 3)
    options.sizes, options.patch = [1, 2], tmp_path / "others.txt"
    options.patch.write_text("\n\n".join("\n".join(random_texts(8, seed=seed)) for seed in range(50, 110)))
    found = regret.measured("tiny", "tiny", options)
    assert found["sizes"]["1"]["patched"]["plans"] == 3
    own = found["sizes"]["2"]["patched"]
    assert own["plans"] == 10
    lines = (tmp_path / "cut-regret-tiny-patched.csv").read_text().splitlines()[2:]
    losses = {line.rpartition(",")[0].strip('"'): float(line.rpartition(",")[2]) for line in lines}
    assert len(losses) == 3 + 10
    assert own["nll"] == pytest.approx(losses[own["best"]], rel=1e-6)
    # The same by the public way: the model is cut and healed by a patch, and evaluated.
    texts = regret.articles(options.text)
    task = regret.of_articles(regret.first_tokens(texts[:10], opened.tokenizer, 256))
    read = regret.of_articles(regret.first_tokens(regret.articles(options.patch), opened.tokenizer, 2048))
    plan = regret.without(regret.blocks_of(own["best"]), 5)
    healed = ls.heal(opened, plan, read, method="patch", max_length=32).model
    assert float(ls.evaluate(healed, task, max_length=32, metric="nll", all_rows=True)) == pytest.approx(
        own["nll"], rel=1e-4
    )
    evaluated = []
    monkeypatch.setattr(regret, "answers", lambda *_: evaluated.append(1))
    assert regret.measured("tiny", "tiny", options)["sizes"]["2"]["patched"] == own  # nothing is patched again
    assert evaluated == []
    page = " ".join("\n".join(pages.regrets({"tiny": json.loads(json.dumps({"regret": found}))})).split())
    assert f"the best leaves out {own['best']} (perplexity" in page


def test_cut_models_are_asked_questions(options, opened):
    rows = regret.questions("tiny", options)
    assert [row["name"] for row in rows] == ["whole", "without 2-3"]
    table = pages.question_table("tiny", rows)[-1]
    assert table.splitlines()[0] == "| tiny | perplexity | addition | brackets | copying | last_word |"
    assert "undefined" in table  # this tokenizer writes no numbers of several digits


def test_the_numbers_of_the_page_are_in_the_table():
    """What the page says of all plans follows from the kept losses of each."""
    folder = ROOT / "docs/results"
    for name, one in pages.read(folder / pages.REGRET).items():
        if "regret" not in one:
            continue
        lines = (folder / f"cut-regret-{name.lower()}.csv").read_text(encoding="utf-8").splitlines()[2:]
        cells = [line.rsplit(",", 2) for line in lines]
        others = {removed.strip('"'): float(value) for removed, _, value in cells}
        for size, found in one["regret"]["sizes"].items():
            own = {key: value for key, value in others.items() if len(regret.blocks_of(key)) == int(size)}
            assert len(own) == found["plans"]
            assert min(own, key=own.__getitem__) == found["best"]
            for row in found["rules"]:
                assert row["regret"] == pytest.approx(own[row["removed"]] - min(own.values()), abs=1e-5)
