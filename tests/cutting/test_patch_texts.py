"""The texts of patches: what is read how, sets that share no text, and texts that patch and are never scored."""

import dataclasses

import numpy as np
import pandas
import pytest

import layerscope as ls
from layerscope.cutting import patch_texts
from layerscope.cutting.patch_texts import deal
from layerscope.errors import InputError
from layerscope.models.lineage import learn, marks
from tests.helpers.data import random_texts, running_task, scored_pairs, two_class_task
from tests.helpers.models import language_model, random_model, shared_classifier, shared_encoder, small_decoder

UNLABELLED = {"text": random_texts(40, seed=9, least=4, most=12)}


def test_texts_must_be_read_as_the_model_reads_them():
    pairs = ls.task(scored_pairs(), text="a", text_pair="b", label="score")
    with pytest.raises(InputError, match="reads two texts in each row"):
        deal(shared_classifier(), ls.task(pandas.DataFrame(UNLABELLED)), like=pairs)
    tuned = random_model("bert", "classifier")
    learned = two_class_task().split("train")
    learn(tuned.network, dataclasses.replace(learned, task="mrpc"))
    with pytest.raises(InputError, match="reads two texts in each row"):
        deal(tuned, ls.task(pandas.DataFrame(UNLABELLED)))
    own = random_model("bert", "classifier")  # tuned on pairs of one's own, which no registry knows
    learn(own.network, dataclasses.replace(learned, pairs=learned.texts))
    with pytest.raises(InputError, match="reads two texts in each row"):
        deal(own, ls.task(pandas.DataFrame(UNLABELLED)))
    rows = scored_pairs(40)[["a", "b"]]
    assert len(deal(tuned, ls.task(rows, text="a", text_pair="b")).learned) == 40
    with pytest.raises(InputError, match="at least 10"):
        deal(shared_classifier(), ls.task(pandas.DataFrame({"text": ["a", "b", "c"]})))
    with pytest.raises(InputError, match="judged by classes"):
        deal(random_model("bert", "spans"), ls.task(pandas.DataFrame(UNLABELLED)))


def test_little_running_text_is_told(caplog):
    deal(small_decoder(), running_task(), max_length=16)
    assert "with less than 16,000" in caplog.text


def test_texts_that_patch_are_not_scored():
    frame = pandas.DataFrame({"text": random_texts(60, least=4, most=12), "label": ["file", "list"] * 30})
    texts = ls.task(frame[:40])
    curve = ls.truncation_curve(shared_classifier(), ls.task(frame), mode="patched", texts=texts, max_length=16)
    assert curve.frame["n"].iloc[0] == 20


def test_texts_that_patch_are_not_scored_where_a_task_has_several_splits():
    """A split that only shared some texts with those that patch was scored as a whole."""
    model, task, options = shared_classifier(), two_class_task(), {"max_length": 16}
    some = task.split("validation").take(slice(20))
    texts = pandas.DataFrame({"text": [*some.texts, *UNLABELLED["text"]]})
    curve = ls.truncation_curve(model, task, mode="patched", texts=texts, **options)
    known = set(some.texts)
    left = [text for text in task.split("validation").texts if text not in known]
    assert curve.frame["n"].iloc[0] == len(left)
    study = ls.cut_study(model, "first 1", task, patch=texts, all_rows=True, **options)
    assert study.provenance["data"]["n"] == len(left)
    advice = ls.advise(model, task, patch=texts, rules="last", timed=False, blocks=2, **options)
    assert len(advice.evaluator.examples) == len(left)
    only = task.only("validation")
    for call in (
        lambda: ls.truncation_curve(model, task, mode="patched", texts=only, **options),
        lambda: ls.cut_study(model, "first 1", task, patch=only, all_rows=True, **options),
        lambda: ls.advise(model, task, patch=only, rules="last", timed=False, blocks=2, **options),
    ):
        with pytest.raises(InputError, match=r"hold texts that patch .*, so none is left to score it on"):
            call()


def test_pairs_that_share_one_text_with_those_that_patch_are_not_scored_by_their_embeddings():
    frame = scored_pairs(60)
    task = ls.task({"train": frame[:30], "validation": frame}, text="a", text_pair="b", label="score")
    texts = deal(shared_encoder(), ls.task(pandas.DataFrame({"text": frame["a"][:20]})))
    evaluator = ls.evaluation.evaluate.make_evaluator(shared_encoder(), task, used=texts.used)
    told = set(texts.learned.texts)
    assert not told & set(task.split("validation").take(evaluator.examples.rows).texts)
    assert not told & set(task.split("validation").take(evaluator.examples.rows).pairs)


def _texts_of(dealt):
    return [set(part.examples.texts) for part in (dealt.solving, dealt.choosing, dealt.held)]


def test_texts_that_occur_several_times_are_in_one_set():
    repeated = ls.task(pandas.DataFrame({"text": random_texts(20, most=8) * 5}))
    solving, choosing, held = _texts_of(deal(shared_classifier(), repeated))
    assert min(map(len, (solving, choosing, held))) > 0
    assert not solving & choosing | solving & held | choosing & held
    pairs = scored_pairs(30)
    pairs["b"] = pairs["a"].to_numpy()[::-1]  # every text is in two pairs
    solving, choosing, held = _texts_of(deal(shared_encoder(), ls.task(pairs, text="a", text_pair="b", label="score")))
    assert not solving & choosing | solving & held | choosing & held
    with pytest.raises(InputError, match="has 3 different texts"):
        deal(shared_classifier(), ls.task(pandas.DataFrame({"text": ["a", "b", "c"] * 20})))


def test_running_text_that_occurs_several_times_is_in_one_set():
    frame = pandas.DataFrame({"text": [f"{text} ." for text in random_texts(20, least=12, most=20)] * 3})
    dealt = deal(small_decoder(), ls.task(frame, kind="text"), max_length=16)
    found = []
    for part in (dealt.solving, dealt.choosing, dealt.held):
        source = part.source[0].texts
        found.append({source[number] for number in part.texts})
    assert not found[0] & found[1] | found[0] & found[2] | found[1] & found[2]


def test_held_out_texts_have_no_part_in_a_healing_by_a_patch():
    frame = pandas.DataFrame({"text": random_texts(60, least=4, most=12), "label": ["file", "list"] * 30})
    healing = ls.heal(
        shared_classifier(), "first 1", ls.task({"train": frame, "validation": frame[:20]}), method="patch"
    )
    dealt = healing.job.texts
    assert not set(frame["text"][:20]) & (set(dealt.solving.examples.texts) | set(dealt.choosing.examples.texts))
    assert set(dealt.held.examples.texts) == set(frame["text"][:20])
    with pytest.raises(InputError, match="none is left to patch on"):
        ls.heal(shared_classifier(), "first 1", ls.task({"train": frame, "validation": frame}), method="patch")


def test_files_that_are_sorted_by_class_give_texts_of_all_classes(monkeypatch):
    monkeypatch.setattr(patch_texts, "TEXTS", 50)
    monkeypatch.setattr(patch_texts, "_OTHER", 20)
    frame = pandas.DataFrame({"text": [f"file {k}" for k in range(200)], "label": [0] * 100 + [1] * 100})
    task = ls.task(frame)
    beside = ls.task(pandas.DataFrame({"text": [f"list {k}" for k in range(200)]}))
    dealt = deal(shared_classifier(), task, other=beside)
    assert len(dealt.learned) == 50
    assert 15 < dealt.learned.labels.sum() < 35
    assert dealt.learned.rows.tolist() == deal(shared_classifier(), task).learned.rows.tolist()
    assert deal(shared_classifier(), task, limit=50).learned.rows.tolist() == list(range(50))  # what was asked for
    assert len(dealt.other.examples) == 20
    assert dealt.other.examples.rows.max() > 150


def test_a_second_domain_that_is_one_text_is_judged_on_its_windows():
    one = pandas.DataFrame({"text": [" ".join(random_texts(200, seed=3, most=20))]})
    dealt = deal(small_decoder(), running_task(), max_length=16, other=ls.task(one, kind="text"))
    assert len(dealt.other.examples) > 30
    assert " ".join(dealt.other.examples.texts).split()[:5] == one["text"][0].split()[:5]
    assert max(map(len, dealt.other.encoded())) <= 16
    assert dealt.used[1].texts == one["text"].tolist()


def test_a_second_domain_shares_no_text_with_those_that_patch():
    both = ls.task(pandas.DataFrame({"text": [*UNLABELLED["text"], *random_texts(30, seed=8, most=8)]}))
    dealt = deal(shared_classifier(), ls.task(pandas.DataFrame(UNLABELLED)), other=both)
    assert not np.isin(marks(dealt.other.examples), marks(dealt.learned)).any()
    with pytest.raises(InputError, match=r"give other texts as other \(--other\)"):
        deal(shared_classifier(), both, other=ls.task(pandas.DataFrame(UNLABELLED)))


def test_a_few_long_documents_of_many_are_not_all_that_is_taken(monkeypatch):
    """Seven documents filled all windows, and a corpus of 134 was refused as too few texts."""
    monkeypatch.setattr(patch_texts, "TOKENS", 16 * 40)
    documents = pandas.DataFrame({"text": [" ".join(random_texts(12, seed=k, most=20)) for k in range(134)]})
    dealt = deal(small_decoder(), ls.task(documents, kind="text"), max_length=16)
    sets = (dealt.solving, dealt.choosing, dealt.held)
    assert len(dealt.learned) == 40
    assert dealt.learned.rows.max() > 100
    assert [len(part.examples) for part in sets] == [24, 8, 8]
    found = [set(part.texts) for part in sets]
    assert len(found[0]) > 10
    assert not found[0] & found[1] | found[0] & found[2] | found[1] & found[2]


def test_windows_of_a_few_documents_are_dealt_out():
    documents = pandas.DataFrame({"text": [" ".join(random_texts(60, seed=k, most=20)) for k in range(7)]})
    dealt = deal(small_decoder(), ls.task(documents, kind="text"), max_length=16)
    ids = [{item.ids.tobytes() for item in part.encoded()} for part in (dealt.solving, dealt.choosing, dealt.held)]
    assert min(map(len, ids)) > 5
    assert not ids[0] & ids[1] | ids[0] & ids[2] | ids[1] & ids[2]


def test_classes_that_only_pairs_have_ask_for_pairs(caplog):
    texts = ls.task(pandas.DataFrame(UNLABELLED))
    model = random_model("bert", "classifier")
    for names in (["entailment", "neutral", "contradiction"], ["NOT EQUIVALENT", "equivalent"], ["a", "Not-Duplicate"]):
        model.network.config.id2label = dict(enumerate(names))
        with pytest.raises(InputError, match="reads two texts in each row"):
            deal(model, texts)
    deal(model, texts, like=two_class_task())  # the task that it is for has single texts
    assert "single texts are assumed" not in caplog.text
    model.network.config.id2label = {0: "negative", 1: "neutral", 2: "positive"}
    deal(model, texts)
    assert "single texts are assumed" not in caplog.text
    model.network.config.id2label = {0: "LABEL_0", 1: "LABEL_1"}
    deal(model, texts)
    assert caplog.text.count("single texts are assumed") == 1
    learn(model.network, two_class_task().split("train"))
    deal(model, texts)
    assert caplog.text.count("single texts are assumed") == 1


def test_a_head_that_is_not_known_is_told_before_the_work():
    """Its logits were taken for states, which ended in shapes that do not fit."""
    with pytest.raises(InputError, match="whose head layerscope does not know: it gives 165 numbers"):
        deal(language_model("llama4_text"), running_task(), max_length=16)


def test_a_second_domain_is_named_wherever_a_patch_is():
    model, task = shared_classifier(), two_class_task()
    texts, beside = pandas.DataFrame(UNLABELLED), pandas.DataFrame({"text": random_texts(30, seed=4, least=4)})
    study = ls.cut_study(model, "first 1", task, patch=texts, other=beside)
    assert len(study.patch.domains) == 2
    assert len(ls.cut_study(model, "first 1", patch=texts, other=beside).patch.domains) == 2
    options = {"rules": "last", "timed": False, "blocks": 2, "max_length": 16}
    assert len(ls.advise(model, task, patch=texts, other=beside, **options).patch.domains) == 2
    assert len(ls.truncation_curve(model, task, mode="patched", texts=texts, other=beside, max_length=16).frame) == 4
    for call in (
        lambda: ls.cut_study(model, "first 1", task, other=beside),
        lambda: ls.cut_study(model, "first 1", other=beside),
        lambda: ls.advise(model, task, other=beside, **options),
        lambda: ls.truncation_curve(model, task, other=beside),
    ):
        with pytest.raises(InputError, match=r"--other\) is for "):
            call()
