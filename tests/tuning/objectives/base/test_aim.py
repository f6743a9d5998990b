"""What every kind of healing shares: teachers that only answer, and those that cannot teach."""

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError
from layerscope.tuning.heal import plan_healing
from layerscope.tuning.objectives.base import Distillation, Teacher, check_teacher, whole
from tests.helpers.data import running_task
from tests.helpers.models import FEW_STEPS, WITHOUT_BLOCK_2, language_model, small_classifier, small_decoder


def test_a_teacher_answers_without_gradients_dropout_or_caches():
    model = small_decoder()
    model.network.train()
    seen = {}

    def run(network):
        seen.update(grad=torch.is_grad_enabled(), training=network.training, cache=network.config.use_cache)
        return 1

    assert Teacher(model)(run) == 1
    assert seen == {"grad": False, "training": False, "cache": False}
    assert model.network.training
    assert model.network.config.use_cache


def test_who_cannot_teach_is_told_why():
    student = small_decoder()
    with pytest.raises(InputError, match="answer different questions"):
        check_teacher(student, small_classifier())
    with pytest.raises(InputError, match="tokenizers differ"):
        check_teacher(student, language_model("llama", bos="adds"))
    with pytest.raises(InputError, match=r"it has 170 outputs, and .* has 165"):
        check_teacher(student, small_decoder(vocab_size=170))


def test_every_token_of_an_item_is_a_row_for_the_frozen_blocks():
    objective = plan_healing(small_decoder(), WITHOUT_BLOCK_2, running_task(), **FEW_STEPS).job.objective
    part = objective.learned
    items = whole(part)(objective.model, part.examples, part.reading)
    assert all(np.array_equal(item.take, np.arange(len(item))) for item in items)
    assert all(np.array_equal(item.ids, own.ids) for item, own in zip(items, part.items, strict=True))
    assert any(len(own.take) < len(own) for own in part.items)  # what is scored is less


def test_a_teaching_is_part_of_the_key_only_with_a_teacher():
    assert Distillation().spec() == {}
    model = ls.load(small_decoder())
    assert Distillation(model, 0.3).spec() != Distillation(model, 0.4).spec()
