"""Every rule on a language model: computed by the command behind docs/results/language-models.md."""

import argparse
import json

import language
import pytest
from scripts import ROOT, script

results = script("docs/results/language_models.py")


@pytest.fixture
def options(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("\n\n".join("\n".join(language.texts(30, seed=seed)) for seed in range(20)))
    return argparse.Namespace(
        **{"text": path, "texts": 10, "choosing_texts": 8, "tokens": 512, "window": 32, "choosing_windows": 12},
        **{"sizes": [1, 2], "seen": ["2"]},
    )


@pytest.mark.slow
def test_a_tiny_model(options, tmp_path, monkeypatch):
    model = language.model("llama", bos="adds", num_hidden_layers=4)
    monkeypatch.setattr(results.ls, "load", lambda _: model)
    numbers = json.loads(json.dumps({results.SEEN_OF: results.measured("tiny", True, options)}))
    tiny = numbers[results.SEEN_OF]
    assert {(row["rule"], row["removed"]) for row in tiny["rules"]} == {(r, n) for r in results.RULES for n in (1, 2)}
    places = results.by_place(tiny)
    assert places["last", 2]["blocks"] == ["3-4"]
    assert places["deepest", 1]["blocks"] == ["3"]
    assert len(places["random", 1]["blocks"]) > 1
    assert tiny["scored"] == 512  # with a first token every token is predicted
    results.write_page(numbers, tmp_path)
    page = (tmp_path / results.PAGE).read_text()
    assert (tmp_path / results.picture(results.SEEN_OF)).stat().st_size > 10_000
    assert f"**{tiny['whole']:.2f}**" in page
    assert "0 of 1 are within 2%" in page


def test_choosing_texts_are_others_than_those_that_are_scored(options, monkeypatch):
    read = []
    monkeypatch.setattr(results, "running", lambda text, bos: read.append(text) or text)
    monkeypatch.setattr(results, "chosen", lambda *_: {})
    monkeypatch.setattr(results, "perplexity", lambda *_: {"perplexity": 1.0, "bits_per_byte": 1.0, "tokens": 1.0})
    model = language.model("llama")
    monkeypatch.setattr(results.ls, "load", lambda _: model)
    results.measured("tiny", False, options)
    texts = results.articles(options.text)
    assert "\n\n".join(texts[:10]).startswith(read[0])
    assert "\n\n".join(texts[10:18]).startswith(read[1])


@pytest.mark.parametrize(("text", "blocks"), [("", []), ("4", [4]), ("13-19,27", [*range(13, 20), 27])])
def test_blocks_as_text(text, blocks):
    assert results.blocks_of(text) == blocks
    assert results.spelled(blocks) == text


def rows(**found):
    return [{"rule": r, "removed": 1, "blocks": ["1"] * len(v), "perplexity": v} for r, v in found.items()]


def test_rules_that_lose_to_random_are_named():
    one = {"sizes": [1], "rules": rows(angular=[30.0], last=[90.0], random=[50.0, 10.0, 70.0])}
    assert results.findings(one) == ["- 1 removed: angular is best (30.0); worse than random (50.0): last."]


def test_what_was_seen_before_is_compared_with():
    near = {"whole": 22.6, "seen": {"": 22.6, "18": 25.0}}
    assert "All 2 are within 2%." in results.comparison(near)
    far = {"whole": 22.6, "seen": {"": 22.6, "18": 30.0}}
    said = " ".join(results.comparison(far).split())
    assert "1 of 2 are within 2%. Which articles were read then is not recorded" in said
    assert "| 18 | 30.0 | 24.9 | +20.5% | +20.3% |" in said


def test_the_page_was_written_by_the_command():
    folder = ROOT / "docs/results"
    numbers = json.loads((folder / results.RESULTS).read_text(encoding="utf-8"))
    assert (folder / results.PAGE).read_text(encoding="utf-8") == results.page(numbers)
    assert all((folder / results.picture(name)).is_file() for name in numbers)


def test_healing_has_its_place():
    assert results.healing({}) == []
    assert "| 8 | 62.6 | 31.2 |" in results.healing({"healing": [{"removed": 8, "before": 62.6, "after": 31.2}]})[0]
