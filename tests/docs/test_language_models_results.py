"""Every rule on a language model: computed by the command behind docs/results/language-models.md."""

import argparse
import json

import pytest

from layerscope.drawing.render import draw
from tests.helpers.cli import ROOT, script
from tests.helpers.data import random_texts
from tests.helpers.models import language_model

results, pages = (script(f"docs/results/{name}.py") for name in ("language_models", "language_models_page"))


@pytest.fixture
def options(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n\n".join("\n".join(random_texts(30, seed=seed)) for seed in range(20)))
    return argparse.Namespace(
        **{"text": path, "texts": 10, "choosing_texts": 8, "tokens": 512, "window": 32, "choosing_windows": 12},
        **{"sizes": [1, 2], "seen": ["2"]},
    )


@pytest.mark.slow
def test_a_tiny_model(options, tmp_path, monkeypatch):
    model = language_model("llama", bos="adds", num_hidden_layers=4)
    monkeypatch.setattr(results.ls, "load", lambda _: model)
    numbers = json.loads(json.dumps({pages.SEEN_OF: results.measured("tiny", True, options)}))
    tiny = numbers[pages.SEEN_OF]
    assert {(row["rule"], row["removed"]) for row in tiny["rules"]} == {(r, n) for r in pages.RULES for n in (1, 2)}
    places = pages.by_place(tiny)
    assert places["last", 2]["blocks"] == ["3-4"]
    assert places["deepest", 1]["blocks"] == ["3"]
    assert len(places["random", 1]["blocks"]) > 1
    assert tiny["scored"] == 512  # with a first token every token is predicted
    pages.write_page(numbers, tmp_path)
    page = (tmp_path / pages.PAGE).read_text()
    assert (tmp_path / pages.picture(pages.SEEN_OF)).stat().st_size > 10_000
    assert f"**{tiny['whole']:.2f}**" in page
    assert "Here 0 of 1 are within 2%" in page


def test_choosing_texts_are_others_than_those_that_are_scored(options, monkeypatch):
    read = []
    monkeypatch.setattr(results, "running", lambda text, bos: read.append(text) or text)
    monkeypatch.setattr(results, "chosen", lambda *_: {})
    monkeypatch.setattr(results, "perplexity", lambda *_: {"perplexity": 1.0, "bits_per_byte": 1.0, "tokens": 1.0})
    model = language_model("llama")
    monkeypatch.setattr(results.ls, "load", lambda _: model)
    results.measured("tiny", False, options)
    texts = results.articles(options.text)
    assert "\n\n".join(texts[:10]).startswith(read[0])
    assert "\n\n".join(texts[10:18]).startswith(read[1])


def test_a_run_that_was_cut_off_goes_on(options, tmp_path, monkeypatch):
    """Its plans are not chosen again and no plan is scored twice; sizes that are whole make a page before the end."""
    plans = {(rule, size): ["1" if size == 1 else "1-2"] for rule in pages.RULES for size in (1, 2)}
    scored, chosen = [], []

    def perplexity(model, key, task, window):
        if len(scored) == 3:
            raise KeyboardInterrupt
        scored.append(key)
        return {"perplexity": 2.0 + len(key), "bits_per_byte": 1.0, "tokens": 1.0}

    monkeypatch.setattr(results, "chosen", lambda *_: chosen.append(1) or plans)
    monkeypatch.setattr(results, "perplexity", perplexity)
    model = language_model("llama", bos="adds")
    monkeypatch.setattr(results.ls, "load", lambda _: model)
    notes = tmp_path / "notes.json"
    with pytest.raises(KeyboardInterrupt):
        results.measured("tiny", True, options, notes)
    partial = results.assembled(json.loads(notes.read_text()))
    assert scored == ["", "2", "1"]
    assert (partial["sizes"], partial["seen"]) == ([1], {"": 2.0, "2": 3.0})
    assert "without_bos" not in partial
    scored.clear()
    whole = results.measured("tiny", True, options, notes)
    assert scored == ["1-2", ""]
    assert len(chosen) == 1
    assert whole["sizes"] == [1, 2]
    assert whole["without_bos"] == 2.0
    options.tokens = 256  # another question: nothing of it is known
    scored.clear()
    with pytest.raises(KeyboardInterrupt):
        results.measured("tiny", True, options, notes)
    assert len(chosen) == 2


def test_stretches_and_what_was_seen_on_the_one_most_alike(options, monkeypatch):
    values = iter([30.0, 22.0, 25.0, *range(100, 200)])
    texts, kept = [], []

    def perplexity(model, key, task, window):
        texts.append((key, task.split().texts[0]))
        return {"perplexity": float(next(values))}

    monkeypatch.setattr(results, "perplexity", perplexity)
    model = language_model("llama")
    monkeypatch.setattr(results.ls, "load", lambda _: model)
    options.stretches, options.tokens = 3, 64
    results.stretches("tiny", options, kept.append)
    numbers = kept[-1]
    assert numbers["whole"] == {0: 30.0, 6: 22.0, 13: 25.0}
    assert numbers["near"] == 6
    assert numbers["seen"].keys() == pages.SEEN.keys()
    assert {text for key, text in texts if key} == {texts[1][1]}
    articles = results.articles(options.text)
    assert all(texts[k][1].startswith(articles[at][:20]) for k, at in enumerate((0, 6, 13)))


@pytest.mark.parametrize(("text", "blocks"), [("", []), ("4", [4]), ("13-19,27", [*range(13, 20), 27])])
def test_blocks_as_text(text, blocks):
    assert results.blocks_of(text) == blocks
    assert results.spelled(blocks) == text


def rows(**found):
    return [{"rule": r, "removed": 1, "blocks": ["1"] * len(v), "perplexity": v} for r, v in found.items()]


def test_rules_that_lose_to_random_are_named():
    one = {"sizes": [1], "rules": rows(angular=[30.0], last=[90.0], random=[50.0, 10.0, 70.0])}
    assert pages.findings(one) == ["- 1 removed: angular is best (30.0); worse than random (50.0): last."]


def test_what_was_seen_before_is_compared_with():
    near = {"whole": 22.6, "seen": {"": 22.6, "18": 25.0}}
    assert "All 2 are within 2%." in pages.comparison(near)
    far = {"whole": 22.6, "seen": {"": 22.6, "18": 30.0}}
    said = " ".join(pages.comparison(far).split())
    assert "Here 1 of 2 are within 2%, because these are other texts: which articles were read then is not" in said
    assert "| 18 | 24.9 | 30.0 | +20.5% | +20.3% |" in said
    alike = {"seen": {"": 22.57, "18": 24.0}}
    said = pages.comparison(far, alike)
    assert "| 18 | 24.9 | 30.0 | +20.5% | +20.3% | 24.0 | -3.6% |" in said
    assert "| none | 22.6 | 22.6 | +0.1% |  | 22.6 | +0.0% |" in said
    assert all(line.count("|") == 8 for line in said.splitlines() if line.startswith("|"))


def test_the_page_was_written_by_the_command():
    folder = ROOT / "docs/results"
    numbers = json.loads((folder / pages.RESULTS).read_text(encoding="utf-8"))
    assert (folder / pages.PAGE).read_text(encoding="utf-8") == pages.page(numbers)
    assert all((folder / pages.picture(name)).is_file() for name in numbers)


def test_healing_has_its_place():
    """A row for each number of blocks, a column for each method, and a gap where a case was not run."""
    assert pages.healing({}) == []
    rows = {
        "2, LoRA": {"blocks": "2-3", "cut": 30.0, "healed": 25.0},
        "4, LoRA": {"blocks": "2-5", "cut": 62.6, "healed": 31.25},
        "4, all parameters, distilled": {"blocks": "2-5", "cut": 62.6, "healed": 33.0},
    }
    said = pages.healing({"cases": rows, "uncut": 22.5, "about": "Healed by little."})[0]
    assert "Before cutting the perplexity is 22.50" in said
    assert "| blocks removed | cut | LoRA | all parameters, distilled |" in said
    assert "What is empty was not run." in said
    assert "| 2 (2-3) | 30.0 | 25.00 |  |" in said
    assert "| 4 (2-5) | 62.6 | 31.25 | 33.00 |" in said


def test_other_stretches_say_how_much_depends_on_the_text():
    assert pages.elsewhere({}) == []
    numbers = {"file": "a.txt", "tokens": 1000, "whole": {"0": 20.0, "7": 22.5, "9": 25.0}}
    said = pages.elsewhere(numbers)[0].replace("\n", " ")
    assert "on 3 stretches of 1,000 tokens" in said
    assert "perplexity 20.0 to 25.0 (22.5 in the middle), and what was seen then, 22.57, lies among these." in said
    seen = {"": 22.5, "18": 24.9, "15": 30.0}
    said = pages.elsewhere({**numbers, "seen": seen})[0].replace("\n", " ")
    assert (
        "(22.50; the last columns) 1 of the 2 cuts are within 2% of what was seen, and the middle one is 10.0% off. The"
        in said
    )
    assert said.endswith("The others are without 15.")


def test_the_name_of_a_rule_stands_where_its_curve_ends():
    found = json.loads((ROOT / "docs/results" / results.RESULTS).read_text(encoding="utf-8"))
    figure = pages.figure(pages.SEEN_OF, found[pages.SEEN_OF])
    axes = draw(figure)
    assert axes.get_yscale() == "log"
    across = axes.transData + axes.transAxes.inverted()
    ends = {series.name: across.transform((1, series.y[-1]))[1] for series in figure.series}
    named = {text.get_text(): text.xy[1] for text in axes.texts if text.get_text() in ends}
    assert sorted(named, key=named.__getitem__) == sorted(ends, key=ends.__getitem__)
    assert named["last"] == pytest.approx(ends["last"], abs=0.05)
    assert named["random"] == pytest.approx(ends["random"], abs=0.05)
