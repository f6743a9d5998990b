"""Which texts heal and which are held out: the end of a file, windows that are needed, rows that are not known."""

import numpy as np
import pytest

import layerscope as ls
from layerscope.errors import InputError
from layerscope.evaluation.evaluate import select_evaluator
from layerscope.evaluation.masked_lm import MaskedLMEvaluator
from layerscope.models.lineage import learn
from layerscope.tuning.heal import parts_of, plan_healing, select_objective
from layerscope.tuning.objectives.embeddings import EmbeddingObjective
from layerscope.tuning.objectives.tokens import TokenObjective
from tests.helpers.data import running_task, text_frame, three_class_task
from tests.helpers.models import (
    WITHOUT_BLOCK_2,
    random_network,
    small_classifier,
    small_decoder,
    small_encoder,
    small_masked,
    word_tokenizer,
)


def test_the_end_of_a_single_text_is_held_out():
    frame = text_frame(30)
    task = ls.task(frame, kind="text")
    learned, held = parts_of(task, small_decoder(), (None, None), running=True)
    assert [*learned.texts, *held.texts] == frame["text"].tolist()
    sizes = [sum(len(text) + 1 for text in part.texts) for part in (learned, held)]
    assert 0.1 <= sizes[1] / sum(sizes) < 0.25
    assert not set(learned.rows) & set(held.rows)


def test_one_text_cannot_be_parted():
    with pytest.raises(InputError, match="is one text, and some of it must be held out"):
        parts_of(ls.task(text_frame(1), kind="text"), small_decoder(), (None, None), running=True)


def test_what_a_model_learned_from_is_not_held_out():
    model, task = small_decoder(), ls.task(text_frame(30), kind="text")
    _, held = parts_of(task, model, (None, None), running=True)
    learn(model.network, held.take(slice(2)))
    _, left = parts_of(task, model, (None, None), running=True)
    assert list(left.rows) == list(held.rows[2:])
    learn(model.network, held)
    with pytest.raises(InputError, match="has learned from all"):
        parts_of(task, model, (None, None), running=True)


def test_no_more_windows_than_the_steps_need_are_learned_from():
    model, task = small_decoder(), running_task(count=200)
    job = plan_healing(
        model, WITHOUT_BLOCK_2, task, steps=2, batch=4, accumulate=2, max_length=16, validation_limit=3
    ).job
    assert len(job.objective.learned.items) == 16
    assert len(job.objective.scored.items) == 3
    used = len(job.training_data.train)
    ids = np.concatenate([item.ids for item in job.objective.learned.items])
    texts = task.split("train").texts
    tokenizer = model.tokenizer

    def tokens(count):
        return tokenizer("\n\n".join(texts[:count]), add_special_tokens=False)["input_ids"]

    assert tokens(used)[: len(ids)] == ids.tolist()  # the texts that count as learned from hold all that was
    assert len(tokens(used - 1)) < len(ids)  # and no others
    whole = plan_healing(model, WITHOUT_BLOCK_2, task, epochs=1, batch=4, max_length=16).job
    assert len(whole.training_data.train) == 200


def test_heads_and_texts_that_do_not_meet():
    choices = ls.task(
        text_frame(4).assign(options=[["a", "b"]] * 4, label=0), choices="options", text="text", label="label"
    )
    with pytest.raises(InputError, match="a language model is healed on running text"):
        select_objective(small_decoder(), choices, False)
    with pytest.raises(InputError, match="has no labels; name the column"):
        select_objective(small_classifier(), three_class_task(labels=False), False)
    choosing = ls.load(random_network("bert", "choice"), tokenizer=word_tokenizer())
    with pytest.raises(InputError, match="cannot heal"):
        select_objective(choosing, three_class_task(False), True)
    with pytest.raises(InputError, match="goes with"):
        select_objective(ls.load(random_network("bert", "tags"), tokenizer=word_tokenizer()), three_class_task(), False)
    assert select_objective(small_encoder(), three_class_task(False), True)[0] is EmbeddingObjective
    objective, read = select_objective(small_masked(), running_task(), False)
    assert objective is TokenObjective
    assert select_evaluator(small_masked(), read)[0] is MaskedLMEvaluator
