"""What frozen blocks give is kept when it is first made, and answered with from then on."""

import numpy as np
import torch
from torch import nn

from layerscope.extraction.encoding import Item
from layerscope.tuning import frozen_cache
from layerscope.tuning.frozen_cache import KeptStates
from layerscope.tuning.heal import plan_healing
from tests.helpers.data import running_task
from tests.helpers.models import FEW_STEPS, WITHOUT_BLOCK_2, small_decoder


def items(*lengths):
    empty = np.zeros(0, np.int64)
    return [Item(np.zeros(n, np.int64), None, empty, empty, empty, False, empty) for n in lengths]


def test_rows_are_known_once_all_of_a_batch_have_been_seen():
    kept = KeptStates(4, 5, 2, torch.zeros(1))
    block = nn.Linear(2, 2)
    first = torch.randn(2, 3, 2)
    with kept.watching(block, [2, 0]):
        given = block(first)
    assert not block._forward_hooks
    torch.testing.assert_close(kept.states([0, 2], 3), given[[1, 0]].detach())
    assert kept.states([0, 1], 3) is None
    assert not kept.states([0], 3).requires_grad


def test_a_table_must_fit_and_not_be_wasteful(monkeypatch):
    like = torch.zeros(1)
    assert KeptStates.fitting(items(8, 8, 7), 4, like).table.shape == (3, 8, 4)
    assert KeptStates.fitting(items(8, 2, 2), 4, like) is None
    monkeypatch.setattr(frozen_cache, "_MOST_ON_CPU", 8)
    assert KeptStates.fitting(items(8, 8, 7), 4, like) is None


def test_later_forwards_skip_the_frozen_blocks_and_answer_alike():
    plan = plan_healing(small_decoder(), WITHOUT_BLOCK_2, running_task(), strategy="(2, L, L)", epochs=3, **_few())
    job = plan.job
    model, objective = job.training_data.model, job.objective
    module = objective.module(model, 1, False).train()
    module.kept_states = KeptStates.fitting([*objective.learned.items], model.width, next(model.network.parameters()))
    rows, ran = objective.rows(objective.learned, first_kept=0), []
    block = module._blocks[0]
    block.mlp.register_forward_hook(lambda *_: ran.append(1))
    losses = [float(module(**objective.collate(model)([rows[k] for k in (3, 1)]))["loss"].detach()) for _ in range(2)]
    assert len(ran) == 1
    assert losses[0] == losses[1]
    module(**objective.collate(model)([rows[k] for k in (3, 2)]))
    assert len(ran) == 2  # one of them is new


def _few():
    return {name: value for name, value in FEW_STEPS.items() if name != "steps"}
