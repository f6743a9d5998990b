"""Padding that is known on the host, and masks that are what they would be without that."""

import threading

import pytest
import torch
from transformers import masking_utils

from layerscope.extraction.forward import padding_known
from tests.helpers.models import NoWaiting, random_model


def inputs(padded):
    ids = torch.randint(5, 20, (3, 6), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    if padded:
        mask[1, 4:] = 0
    return {"input_ids": ids, "attention_mask": mask}


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("family", ["bert", "gpt2", "llama", "mistral"])
def test_states_are_the_same_and_nothing_is_waited_for(family, padded):
    network = random_model(family).network.eval()
    batch = inputs(padded)
    with torch.inference_mode():
        expected = network(**batch, use_cache=False)[0]
        with padding_known((3, 6), padded=padded), NoWaiting():
            got = network(**batch, use_cache=False)[0]
    assert torch.equal(got, expected)


def test_only_the_batch_that_is_known_is_answered_for():
    mask = inputs(padded=False)["attention_mask"].bool()
    ask = masking_utils._ignore_bidirectional_mask_sdpa
    with padding_known((3, 6), padded=True):
        ask = masking_utils._ignore_bidirectional_mask_sdpa
        assert not ask(mask, 6)  # believed, not read
        assert ask(mask[:2], 6)  # another batch is looked at
        assert ask(None, 6)
        with padding_known((2, 6), padded=True):
            assert ask(mask, 6)
        assert not ask(mask, 6)
        answers = []
        thread = threading.Thread(target=lambda: answers.append(bool(ask(mask, 6))))
        thread.start()
        thread.join()
        assert answers == [True]  # nor is what another thread runs
    assert ask(mask, 6)
