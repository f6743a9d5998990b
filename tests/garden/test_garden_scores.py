"""Sharing the work of scoring, merging it, and what counts as too little."""

import pytest
import scores
from nursery import cards

import layerscope as ls


def entry(values, majority=0.5, twin=0.55):
    return {"seeds": dict(zip("012", values, strict=False)), "random": twin, "majority": majority, "metric": "accuracy"}


def test_shares_divide_the_runs():
    whole = scores.jobs(["a", "b"], ["sst2", "pydocs"], [0, 1, 2])
    parts = [job for i in range(3) for job in scores.jobs(["a", "b"], ["sst2", "pydocs"], [0, 1, 2], (i, 3))]
    assert sorted(parts) == sorted(whole)
    assert len(set(whole)) == 2 * 2 * 4


def test_runs_are_merged_and_found_again(tmp_path):
    path = tmp_path / "scores.json"
    found = {"score": 0.8, "metric": "accuracy", "majority": 0.5, "edition": "CPython-3.12.3"}
    for seed in ("1", "0", "random"):
        scores.merge(
            ("bert-s0", "sst2", seed), found | {"score": 0.7 if seed == "random" else 0.8}, {"loss": 3.0}, path
        )
    assert scores.read(path)["bert-s0"]["tasks"]["sst2"]["seeds"] == {"0": 0.8, "1": 0.8}
    assert scores.read(path)["bert-s0"]["tasks"]["sst2"]["random"] == 0.7
    assert scores.read(path)["bert-s0"]["held_out"] == {"loss": 3.0}
    assert "| sst2 (CPython-3.12.3) | 0.800 |" in "\n".join(scores.cards._scores(scores.read(path)["bert-s0"]["tasks"]))
    assert scores._has(scores.read(path), "bert-s0", "sst2", "1")
    assert not scores._has(scores.read(path), "bert-s0", "sst2", "2")
    assert not scores._has(scores.read(path), "bert-s1", "sst2", "random")


def test_scores_of_two_editions_are_not_mixed(tmp_path):
    path = tmp_path / "scores.json"
    found = {"score": 0.8, "metric": "accuracy", "majority": 0.5, "edition": "CPython-3.12.3"}
    scores.merge(("bert-s0", "pydocs", "0"), found, {"loss": 3.0}, path)
    with pytest.raises(SystemExit, match=r"pydocs CPython-3.12.3, and here it is CPython-3.11.7: their rows differ"):
        scores.merge(("bert-s0", "pydocs", "random"), found | {"edition": "CPython-3.11.7"}, {"loss": 3.0}, path)
    assert scores.read(path)["bert-s0"]["tasks"]["pydocs"]["random"] is None


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ({"bert-s0": {"sst2": entry([0.82, 0.84])}}, []),
        ({"bert-s0": {"sst2": entry([0.78, 0.79])}}, ["below 0.8"]),
        ({"gpt2-s0": {"sst2": entry([0.78, 0.79])}}, []),
        ({"bert-s0": {"sst2": entry([0.85], twin=0.8)}}, ["its untrained twin 0.800"]),
        ({"bert-s0": {"pydocs": entry([0.5], majority=0.45, twin=0.3)}}, ["the majority class 0.450"]),
        ({"bert-s0": {"sst2": entry([0.85])}, "bert-s1": {"sst2": entry([0.82])}}, ["differ by 0.030"]),
    ],
)
def test_what_falls_short_is_said(tasks, said):
    found = scores.shortfalls({model: {"tasks": record} for model, record in tasks.items()})
    assert len(found) == len(said)
    assert all(part in sentence for part, sentence in zip(said, found, strict=True))


def test_a_model_is_tuned_and_its_card_updated(trained, tmp_path, monkeypatch, capsys):
    import layerscope_garden

    folder = trained("bert", "bert-s8", "--steps", "2").parent
    monkeypatch.setattr(layerscope_garden, "folder", lambda: folder)
    monkeypatch.setitem(
        scores.SETTINGS, "pydocs", {"learning_rate": 1e-3, "batch": 16, "max_steps": 2, "max_length": 16}
    )
    options = [
        "--models",
        "bert-s8",
        "--tasks",
        "pydocs",
        "--seeds",
        "0",
        "--limit",
        "64",
        "--out",
        str(tmp_path / "s.json"),
    ]
    scores.main(options)
    card = cards.read(folder / "bert-s8")
    assert 0 < card["scores"]["pydocs"]["seeds"]["0"] < 1
    assert card["scores"]["pydocs"]["random"] is not None
    assert "## Fine-tuned" in (folder / "bert-s8" / "README.md").read_text(encoding="utf-8")
    assert "falls short" in capsys.readouterr().out or scores.shortfalls(scores.read(tmp_path / "s.json"))
    tune, again = ls.tune, []
    monkeypatch.setattr(ls, "tune", lambda source, *rest, **named: again.append(source) or tune(source, *rest, **named))
    scores.main(options)
    assert again == []  # what is in scores.json is not done again
    scores.main([*options, "--twins"])
    assert again == ["random:garden:bert-s8"]
