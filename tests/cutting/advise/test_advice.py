"""Advice on a real tuned model: chosen on one half, scored on the other, and equal to brute force."""

import dataclasses

import numpy as np
import pandas
import pytest
import torch

import layerscope as ls
from layerscope.cutting.selection_test import Parts
from layerscope.errors import InputError, PlanError
from layerscope.evaluation.evaluate import make_evaluator
from layerscope.models.devices import is_offloaded
from layerscope.registry import RULES
from tests.helpers.data import three_class_frame
from tests.helpers.models import WAYS_TO_OFFLOAD, random_network, save_random, word_tokenizer

EARLIER = ["last", "spans", "greedy"]
OPTIONS = {"limit": 200, "rules": EARLIER, "evaluations": 6, "max_length": 24}
SHORT = {"max_length": 16, "timed": False}


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LAYERSCOPE_HOME", str(tmp_path_factory.mktemp("home")))
        yield


@pytest.fixture(scope="module")
def found(home, tuned_minilm):
    """Chosen without a bound."""
    return ls.advise(tuned_minilm, "pydocs", tolerance=0.03, confidence=0, **OPTIONS)


@pytest.fixture(scope="module")
def sure(home, tuned_minilm):
    """Chosen with 90 % confidence; the tolerance is large, since the rows are few."""
    return ls.advise(tuned_minilm, "pydocs", tolerance=0.4, **OPTIONS)


def test_what_is_chosen_was_picked_and_confirmed(sure):
    table, picking, confirming = sure.frame, sure.parts.picking, sure.parts.confirming
    assert sure.confidence == 0.9
    tested = [check.candidate for check in sure.decision.checks]
    assert sure.decision.choice == tested[-1 if sure.decision.checks[-1].passed else -2]
    assert table.index[table["change"].notna()].tolist() == sorted(tested)
    picks = table[table["savable"] & (table["removed"] > 0)].groupby("removed")["chosen_on"].max()
    assert table.loc[tested, "removed"].tolist() == list(range(1, len(tested) + 1))
    assert table.loc[tested, "chosen_on"].tolist() == picks.tolist()[: len(tested)]
    smaller = make_evaluator(ls.load(sure.model), "pydocs", limit=200, max_length=24)
    whole = make_evaluator(sure.evaluator.model, "pydocs", limit=200, max_length=24)
    answers, plain = smaller.logits(), whole.logits()
    assert sure.row["chosen_on"] == pytest.approx(smaller.value(answers, picking))
    assert sure.row["change"] == pytest.approx(smaller.value(answers, confirming) - whole.value(plain, confirming))
    assert -0.4 <= sure.row["change_low"] < sure.row["change"]
    assert f"With 90% confidence it loses at most {-sure.row['change_low']:.4f} accuracy." in str(sure)


def test_the_whole_model_has_a_row_and_every_latency_a_unit(sure):
    whole = sure.frame.iloc[0]
    assert (whole["removed"], whole["blocks"], whole["plan"]) == (0, "1-6", str(ls.LayerPlan(range(1, 7))))
    assert [name for name in sure.frame if "latency" in name] == ["latency_1_ms", "latency_32_ms"]
    assert sure.frame["latency_32_ms"].between(1, 100_000).all()
    assert f" ms in place of {whole['latency_32_ms']:.1f} ms)" in str(sure)
    assert "the whole model" in [point.label for point in sure.figures()[0].points]


def test_too_few_rows_are_said_to_be_too_few(tuned_minilm, home, caplog):
    few = ls.advise(tuned_minilm, "pydocs", rules="last", limit=60, max_length=24, timed=False)
    assert not few.choice.removed(6)
    assert "60 rows are too few to show with 90 % confidence that a smaller model is within 0.01" in caplog.text
    assert "that takes 630 rows" in caplog.text  # 231 that confirm, 22 of 60 do
    assert str(few).startswith("No block is shown to be dispensable with 90% confidence.")
    if few.rows_needed is not None:
        assert few.rows_needed >= 600
        assert f"about {few.rows_needed:,} rows, where there are 60" in str(few)


def test_without_a_confidence_there_is_a_warning(found, tuned_minilm, home, caplog):
    assert "chosen without a bound (confidence 0): the luckiest of many is often outside it." in str(found)
    assert found.decision is None
    assert found.frame["change"].isna().all()
    ls.advise(tuned_minilm, "pydocs", rules="last", limit=40, confidence=0, max_length=24, timed=False)
    assert "confidence is 0" in caplog.text


def test_where_the_other_half_says_otherwise_it_is_said(sure):
    scores = sure.frame["score"].where(~sure.frame["chosen"], sure.frame["score"].iloc[0] - 0.5)
    worse = dataclasses.replace(sure, candidates=sure.frame.assign(score=scores))
    assert "it loses 0.5000 accuracy, which is more than the tolerance of 0.4." in str(worse)
    better = dataclasses.replace(sure, candidates=sure.frame.assign(score=sure.frame["score"].iloc[0]))
    assert "more than the tolerance" not in str(better).split("The next smaller")[0]


def test_the_choice_without_a_bound_is_the_smallest_within_the_tolerance(found):
    table = found.frame
    whole = table.iloc[0]
    assert (whole["removed"], whole["blocks"]) == (0, "1-6")
    enough = table[(table["chosen_on"] >= whole["chosen_on"] - 0.03) & table["savable"]]
    assert found.row["macs"] == enough["macs"].min()
    assert found.choice.removed(6) == tuple(b for b in range(1, 7) if b not in found.choice.keep)
    assert set(table.columns) >= {
        "score",
        "low",
        "high",
        "parameters",
        "macs",
        "latency_1_ms",
        "latency_32_ms",
        "front",
    }
    assert (table["low"] <= table["score"]).all()
    assert (table["score"] <= table["high"]).all()
    assert (table["latency_1_ms"] > 0).all()
    assert table["plan"].is_unique


def test_both_halves_are_those_of_brute_force(found):
    labels = found.evaluator.labels
    parts = Parts.dealt(np.arange(200), 0, seed=0, labels=labels)
    choosing, scoring = parts.picking, parts.scoring
    assert not set(choosing) & set(scoring)
    smaller = make_evaluator(ls.load(found.model), "pydocs", limit=200, max_length=24)
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
    guessing = dataclasses.replace(found, candidates=found.frame.assign(score=found.evaluator.majority))
    assert f"no better than one answer to everything ({found.evaluator.majority:.4f})." in str(guessing)


def test_mistakes_are_sentences():
    opened = ls.load(random_network("bert"), tokenizer=word_tokenizer())
    few = pandas.DataFrame({"text": ["the file"] * 6, "label": [0, 1, 2] * 2})
    with pytest.raises(InputError, match="has 6 rows; advice needs at least 20"):
        ls.advise(opened, few)
    with pytest.raises(InputError, match="tolerance is -1"):
        ls.advise(opened, few, tolerance=-1)
    with pytest.raises(InputError, match=r"confidence is 1; it must be at least 0.5 and below 1"):
        ls.advise(opened, few, confidence=1)
    with pytest.raises(InputError, match=r"evaluations is -1; it must be 0 .* or more"):
        ls.advise(opened, few, evaluations=-1)


LOSE_ANY = {"tolerance": 1.0, "confidence": 0, "rules": ["last", "spans"], "timed": False}


def test_what_is_advised_can_be_cut(monkeypatch):
    """Whatever is found out only by running is found out before it is advised."""
    from layerscope.cutting import advise as module

    real = module.check_in_place

    def check_in_place(model, plan):
        if len(plan.keep) < 3:
            raise PlanError("no")
        real(model, plan)

    monkeypatch.setattr(module, "check_in_place", check_in_place)
    frame = pandas.DataFrame({"text": [f"the file {i}" for i in range(24)], "label": np.arange(24) % 3})
    network = random_network("gpt2", scale_attn_by_inverse_layer_idx=True)
    found = ls.advise(ls.load(network, tokenizer=word_tokenizer("gpt2")), frame, **LOSE_ANY)
    assert found.choice == ls.LayerPlan([1, 2, 3])
    table = found.frame.set_index("blocks")
    assert table.loc["1-3", "savable"]
    assert not table.loc["1, 3-4", "savable"]
    assert found.model.config.n_layer == 3


def test_memory_that_runs_out_does_not_change_what_is_advised(monkeypatch):
    network = random_network("bert")
    opened = ls.load(network, tokenizer=word_tokenizer())
    frame = three_class_frame(30, 1)
    expected = ls.advise(opened, frame, **LOSE_ANY)
    assert expected.choice.removed(4)

    def full(*_, **__):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr("layerscope.cutting.cut.give_tensors", full)
    found = ls.advise(opened, frame, **LOSE_ANY)
    assert found.choice == expected.choice
    assert found.frame["savable"].tolist() == expected.frame["savable"].tolist()
    with pytest.raises(InputError, match=r"memory ran out \(CUDA out of memory.*ls.cut_folder\(folder, plan, path\)"):
        _ = found.model


@pytest.mark.parametrize("way", WAYS_TO_OFFLOAD)
def test_a_network_whose_weights_wait_elsewhere_is_advised_on_and_cut_on_disk(way, tmp_path, monkeypatch):
    from layerscope.cutting import advice as module

    folder = save_random(tmp_path / "whole", "bert")
    frame = three_class_frame(30, 1)
    expected = ls.advise(folder, frame, **LOSE_ANY)
    network = way(ls.load(folder).network, tmp_path / "offload")
    assert is_offloaded(network)
    monkeypatch.setattr(module, "cut", lambda *_: pytest.fail("a network was cut in memory"))
    found = ls.advise(ls.load(network, tokenizer=word_tokenizer()), frame, **LOSE_ANY)
    assert found.choice == expected.choice
    assert found.choice.removed(4)
    pandas.testing.assert_frame_equal(found.frame, expected.frame, rtol=1e-4)
    how = found.save_model(tmp_path / "small", folder)
    assert how == "cut on disk, every tensor compared by its hash, reopened and compared"
    scored = make_evaluator(ls.load(tmp_path / "small"), frame)
    assert scored.value(scored.logits(), found.parts.scoring) == pytest.approx(found.row["score"])
    assert (
        f"| {found.row['score']:.4f} | {len(found.parts.scoring)} |" in (tmp_path / "small" / "README.md").read_text()
    )


def test_a_language_model_loses_blocks_by_a_share_of_its_perplexity(tmp_path):
    from tests.helpers.data import text_frame
    from tests.helpers.models import language_model

    opened, data = language_model(), ls.task(text_frame(60, least=6), kind="text")
    found = ls.advise(opened, data, tolerance="30%", confidence=0, evaluations=0, max_length=16)
    whole = found.frame.iloc[0]
    assert (whole["metric"], found.row["metric"]) == ("perplexity", "perplexity")
    assert found.row["chosen_on"] <= 1.3 * whole["chosen_on"]
    smaller = found.frame[found.frame["macs"] < found.row["macs"]]
    assert not (smaller["savable"] & (smaller["chosen_on"] <= 1.3 * whole["chosen_on"])).any()
    assert (found.frame["low"] <= found.frame["score"]).all()
    assert "down is better" in found.figures()[0].reading
    assert "perplexity" in str(found)
    folder = ls.save(found.model, tmp_path / "small", scores=found.score)
    assert type(ls.load(folder).network) is type(opened.network)
    assert found.score.interval == (found.row["low"], found.row["high"])
    assert "{:.4f} to {:.4f} | perplexity |".format(*found.score.interval) in (folder / "README.md").read_text()
    sure = ls.advise(opened, data, tolerance=0.3, confidence=0.9, evaluations=0, max_length=16, max_span=1)
    tested = sure.frame[sure.frame["change"].notna()]
    assert len(tested)
    assert (tested["change_low"] <= tested["change"]).all()


def test_the_parts_of_running_text_share_no_text():
    from tests.helpers.data import text_frame
    from tests.helpers.models import language_model

    data = ls.task(text_frame(60, least=6), kind="text")
    found = ls.advise(language_model(), data, tolerance=0.3, rules="last", remove=1, timed=False, max_length=16)
    parts = (found.parts.picking, found.parts.confirming, found.parts.scoring)
    texts = [set(found.evaluator.made_of(part)) for part in parts]
    assert set.union(*texts) == set(range(60))
    assert sum(map(len, texts)) == 60
    for part, some in zip(parts, texts, strict=True):
        own = "\n\n".join(data.split().texts[k] for k in sorted(some))
        ids = found.evaluator.model.tokenizer(own, add_special_tokens=False)["input_ids"]
        assert np.concatenate([found.evaluator.encoded()[row].ids for row in part.tolist()]).tolist() == ids
    assert not any("windows" in str(finding) for finding in found.findings())


def test_where_all_is_one_text_windows_are_dealt_out_and_the_advice_says_so():
    from tests.helpers.data import text_frame
    from tests.helpers.models import language_model

    short = {"tolerance": 0.3, "rules": "last", "remove": 1, "timed": False, "max_length": 16}
    found = ls.advise(language_model(), text_frame(1, least=600, most=601), **short)
    assert any("over windows, since all of them are of one text" in str(each) for each in found.findings())
    for count in (2, 3, 4):  # texts are dealt out all the same, and none both chooses and scores
        found = ls.advise(language_model(), text_frame(count, least=300, most=301), **short)
        texts, parts = found.evaluator.texts, found.parts
        assert all(len(rows) for rows in (parts.picking, parts.confirming, parts.scoring))
        assert not set(texts[parts.scoring]) & set(texts[[*parts.picking, *parts.confirming]])
        assert any("Intervals and bounds are over windows" in str(each) for each in found.findings())


def test_where_a_part_would_have_no_text_windows_are_dealt_out_and_the_advice_says_so():
    from tests.helpers.data import text_frame
    from tests.helpers.models import language_model

    frame = pandas.concat([text_frame(1, least=600, most=601), text_frame(1, least=1, most=2)])
    short = {"tolerance": 0.3, "rules": "last", "remove": 1, "timed": False, "max_length": 16}
    found = ls.advise(language_model(), frame, **short)
    (said,) = [str(each) for each in found.findings() if "over windows" in str(each)]
    assert "Windows of one text are in the part that chooses and in the part that is scored" in said
    assert len(found.parts.scoring) > 10


def test_the_best_front_of_a_loss_is_its_lowest():
    from tests.helpers.data import text_frame
    from tests.helpers.models import language_model

    opened, data = language_model(), ls.task(text_frame(60, least=6), kind="text")
    frame = ls.advise(opened, data, tolerance="5%", confidence=0, evaluations=0, max_length=16, max_span=1).frame
    assert frame["front"][frame["chosen_on"].idxmin()]


def test_every_rule_proposes_and_is_set_beside_random_plans():
    from tests.helpers.data import text_frame
    from tests.helpers.models import language_model

    opened, data = language_model(), ls.task(text_frame(60, least=6), kind="text")
    found = ls.advise(opened, data, tolerance="30%", confidence=0, rules=list(RULES), **SHORT)
    depth = opened.depth
    named = set(", ".join(found.frame["rule"].iloc[1:]).split(", "))
    assert named == set(found.rule_names) == set(RULES)
    assert found.frame["plan"].is_unique
    assert found.frame["latency_1_ms"].isna().all()
    singles = found.frame[found.frame["removed"] == 1]
    assert len(singles) == depth  # spans has them all
    best = singles.loc[singles["chosen_on"].idxmin()]
    assert "greedy" in best["rule"]
    rules = found.rules.set_index(["rule", "removed"])
    assert set(rules.index) >= {(rule, 1) for rule in RULES}
    random = found.frame[found.frame["rule"].str.contains("random") & (found.frame["removed"] == 1)]
    assert rules.loc[("spans", 1), "random"] == pytest.approx(random["score"].median())
    assert rules.loc[("spans", 1), "score"] == best["score"]


def scored(advice):
    """The score of every plan on the rows that did not choose, by cutting it."""
    for plan, row in zip(map(kept, advice.frame["blocks"]), advice.frame.itertuples(), strict=True):
        cut = advice.evaluator.with_model(ls.load(ls.cut(advice.evaluator.model, plan)))
        yield row, cut.value(cut.logits(), advice.parts.picking), cut.value(cut.logits(), advice.parts.scoring)


def kept(blocks):
    from layerscope.cutting.plan import integers

    return ls.LayerPlan(integers(blocks.replace(" ", "")))


def causal_model():
    from tests.helpers.data import text_frame
    from tests.helpers.models import language_model

    return language_model(), ls.task(text_frame(60, least=6), kind="text")


def embedding_model():
    from tests.helpers.data import random_texts

    words = random_texts(120)
    pairs = pandas.DataFrame({"text": words[:60], "text_pair": words[60:], "label": np.linspace(0, 1, 60)})
    return ls.load(random_network("bert", "encoder"), tokenizer=word_tokenizer()), ls.task(pairs, metric="spearman")


def classifier():
    from tests.helpers.data import labelled_frame
    from tests.helpers.models import random_classifier

    return random_classifier("bert"), labelled_frame()


@pytest.mark.parametrize("kind", [classifier, causal_model, embedding_model])
def test_the_best_plan_that_meets_a_target(kind):
    opened, data = kind()
    depth = opened.depth
    found = ls.advise(opened, data, blocks=depth - 2, rules="angular,greedy,last,spans", **SHORT)
    assert len(found.choice.keep) == depth - 2
    assert set(found.frame["removed"]) == {0, 2}
    assert len(found.parts.confirming) == 0
    sign = 1 if found.evaluator.higher_is_better else -1
    worths = {}
    for row, choosing, score in scored(found):
        assert row.chosen_on == pytest.approx(choosing, rel=1e-4)
        assert row.score == pytest.approx(score, rel=1e-4)
        worths[row.blocks] = sign * row.chosen_on
    best = max(worth for blocks, worth in worths.items() if blocks != f"1-{depth}")
    assert worths[found.row["blocks"]] == best
    assert found.row["change_low"] <= found.row["change"]
    change = sign * (found.row["score"] - found.frame["score"].iloc[0])
    assert found.row["change"] == pytest.approx(change, rel=0.05, abs=0.02)
    assert f"keep {depth - 2} blocks" in str(found)
    assert "tolerance" not in str(found)
    assert found.print_as("llama.cpp").startswith("--prune-layers ")


@pytest.mark.parametrize("kind", [classifier, causal_model, embedding_model])
def test_parameters_are_a_target(kind):
    opened, data = kind()
    found = ls.advise(opened, data, parameters="90%", rules="last,deepest", **SHORT)
    whole = found.frame["parameters"].iloc[0]
    assert found.row["parameters"] <= 0.9 * whole
    assert found.row["parameters"] == sum(p.numel() for p in found.model.parameters())
    with pytest.raises(InputError, match="with one block left of"):
        ls.advise(opened, data, parameters=100, **SHORT)


def test_latency_is_a_target():
    opened, data = classifier()
    found = ls.advise(opened, data, latency="99%", rules="last", max_length=16)
    assert found.row["latency_1_ms"] <= 0.99 * found.frame["latency_1_ms"].iloc[0]
    assert "of the time at batch 1" in str(found)
    with pytest.raises(InputError, match="A latency was asked for, and without timing"):
        ls.advise(opened, data, latency="99%", timed=False)
    with pytest.raises(InputError, match="blocks says how many stay and remove how many go"):
        ls.advise(opened, data, blocks=2, remove=1)


def masked_model():
    from tests.helpers.data import text_frame
    from tests.helpers.models import language_model

    return language_model("bert", "masked"), ls.task(text_frame(40, least=6), kind="text")


def tagger():
    from tests.helpers.data import random_texts

    words = [text.split() for text in random_texts(40)]
    tags = [["DET" if len(word) < 4 else "NOUN" for word in row] for row in words]
    network = random_network("bert", "tags", labels=2)
    network.config.id2label = {0: "DET", 1: "NOUN"}
    data = pandas.DataFrame({"words": words, "pos": tags})
    return ls.load(network, tokenizer=word_tokenizer()), ls.task(data, tags="pos")


def choices(kind):
    from tests.helpers.data import random_texts

    endings = [random_texts(3 - (k in (1, 4)), seed=k, most=6) for k in range(40)]
    table = pandas.DataFrame({"text": random_texts(40), "endings": endings, "label": np.arange(40) % 2})
    family = "gpt2" if kind == "next" else "bert"
    opened = ls.load(random_network(family, kind), tokenizer=word_tokenizer(family))
    return opened, ls.task(table, choices="endings")


@pytest.mark.parametrize(
    "kind",
    [masked_model, tagger, lambda: choices("next"), lambda: choices("choice")],
    ids=["masked", "tags", "next", "choice"],
)
def test_every_head_is_searched_alike(kind):
    opened, data = kind()
    found = ls.advise(opened, data, rules="angular,influence,greedy,random", remove=1, tolerance=5.0, **SHORT)
    depth = opened.depth
    assert {len(kept(blocks).keep) for blocks in found.frame["blocks"]} == {depth, depth - 1}
    for row, choosing, score in scored(found):
        assert (row.chosen_on, row.score) == pytest.approx((choosing, score), rel=1e-4)
