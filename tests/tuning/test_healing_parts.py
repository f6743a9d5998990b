"""Which texts heal and which are held out: the end of a file, windows that are needed, rows that are not known."""

import healed
import language
import numpy as np
import pytest
import zoo

import layerscope as ls
from layerscope.errors import InputError
from layerscope.models.lineage import learn
from layerscope.tuning.healing import plan_healing
from layerscope.tuning.healing_parts import asked_of, parts_of


def test_the_end_of_a_single_text_is_held_out():
    frame = language.frame(30)
    task = ls.task(frame, kind="text")
    learned, held = parts_of(task, "running", healed.decoder(), (None, None))
    assert [*learned.texts, *held.texts] == frame["text"].tolist()
    sizes = [sum(len(text) + 1 for text in part.texts) for part in (learned, held)]
    assert 0.1 <= sizes[1] / sum(sizes) < 0.25
    assert not set(learned.rows) & set(held.rows)


def test_one_text_cannot_be_parted():
    with pytest.raises(InputError, match="is one text, and some of it must be held out"):
        parts_of(ls.task(language.frame(1), kind="text"), "running", healed.decoder(), (None, None))


def test_what_a_model_learned_from_is_not_held_out():
    model, task = healed.decoder(), ls.task(language.frame(30), kind="text")
    _, held = parts_of(task, "running", model, (None, None))
    learn(model.network, held.take(slice(2)))
    _, left = parts_of(task, "running", model, (None, None))
    assert list(left.rows) == list(held.rows[2:])
    learn(model.network, held)
    with pytest.raises(InputError, match="has learned from all"):
        parts_of(task, "running", model, (None, None))


def test_no_more_windows_than_the_steps_need_are_learned_from():
    model, task = healed.decoder(), healed.running(count=200)
    job = plan_healing(model, healed.PLAN, task, steps=2, batch=4, accumulate=2, max_length=16, validation_limit=3).job
    assert len(job.aim.learned.items) == 16
    assert len(job.aim.scored.items) == 3
    used = len(job.lesson.train)
    ids = np.concatenate([item.ids for item in job.aim.learned.items])
    texts = task.split("train").texts
    tokenizer = model.tokenizer

    def tokens(count):
        return tokenizer("\n\n".join(texts[:count]), add_special_tokens=False)["input_ids"]

    assert tokens(used)[: len(ids)] == ids.tolist()  # the texts that count as learned from hold all that was
    assert len(tokens(used - 1)) < len(ids)  # and no others
    whole = plan_healing(model, healed.PLAN, task, epochs=1, batch=4, max_length=16).job
    assert len(whole.lesson.train) == 200


def test_heads_and_texts_that_do_not_meet():
    choices = ls.task(
        language.frame(4).assign(options=[["a", "b"]] * 4, label=0), choices="options", text="text", label="label"
    )
    with pytest.raises(InputError, match="a language model is healed on running text"):
        asked_of(healed.decoder(), choices, False)
    with pytest.raises(InputError, match="has no labels; name the column"):
        asked_of(healed.classifier(), healed.labelled(labels=False), False)
    with pytest.raises(InputError, match="cannot heal"):
        asked_of(ls.load(zoo.network("bert", "choice"), tokenizer=zoo.tokenizer()), healed.labelled(False), True)
    with pytest.raises(InputError, match="goes with"):
        asked_of(ls.load(zoo.network("bert", "tags"), tokenizer=zoo.tokenizer()), healed.labelled(), False)
    assert asked_of(healed.encoder(), healed.labelled(False), True)[0] == "embeddings"
    assert asked_of(healed.masked(), healed.running(), False)[0] == "masked"
