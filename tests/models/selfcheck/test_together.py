"""Several states through one block at once give what they give one by one."""

import pytest
import torch

from layerscope.models import Replay
from layerscope.models.selfcheck import BatchedReplay
from tests.helpers.models import FAMILIES, random_model, token_batch


@pytest.mark.parametrize("rows", [1, 3])
@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_together_is_one_by_one(family, rows):
    opened = random_model(family, "classifier")
    replay = Replay(opened, token_batch(rows=rows))
    states = [replay.states[0], replay.states[2], replay.states[3]]
    for block in (1, 4):
        found = BatchedReplay(opened).run(replay, states, block)
        assert len(found) == 3
        for state, got in zip(states, found, strict=True):
            torch.testing.assert_close(got, replay.run(state, block), rtol=1e-4, atol=1e-5)


@torch.inference_mode()
def test_one_state_is_run_alone():
    opened = random_model("bert", "classifier")
    replay = Replay(opened, token_batch())
    (found,) = BatchedReplay(opened).run(replay, [replay.states[1]], 2)
    assert torch.equal(found, replay.run(replay.states[1], 2))


@torch.inference_mode()
def test_arguments_of_another_kind_go_one_by_one(monkeypatch):
    opened = random_model("bert", "classifier")
    together, replay = BatchedReplay(opened), Replay(opened, token_batch())
    together._axes[1] = None  # as if its arguments had been of another shape when the axes were found out
    monkeypatch.setattr(replay, "run_call", lambda *_: pytest.fail("they were put together"), raising=True)
    runs = []
    monkeypatch.setattr(replay, "run", lambda state, block: runs.append(block) or state)
    assert len(together.run(replay, [replay.states[1], replay.states[2]], 2)) == 2
    assert runs == [2, 2]
