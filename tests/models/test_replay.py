import pytest
import torch

from layerscope.errors import InputError
from layerscope.models import Replay, load
from layerscope.models.architecture import block_modules, only_blocks
from layerscope.models.replay import caches_off
from layerscope.models.selfcheck import faults, primary
from tests.helpers.models import FAMILIES, random_network, token_batch, word_tokenizer


def classifier(family, **options):
    return load(random_network(family, **options), tokenizer=word_tokenizer(family))


@pytest.mark.parametrize("left", [False, True], ids=["right", "left"])
@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_blocks_run_one_by_one_give_the_models_logits(family, left):
    model = classifier(family)
    inputs = token_batch(left=left)
    expected = model.network(**inputs).logits
    replay = Replay(model, inputs)
    state = replay.states[0]
    for block in range(1, model.depth + 1):
        state = replay.run(state, block)
    torch.testing.assert_close(replay.finish(state).logits, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_states_are_the_hidden_states_of_transformers(family):
    model = load(random_network(family, "encoder"), tokenizer=word_tokenizer(family))
    inputs = token_batch()
    with caches_off(model.network):
        result = model.network(**inputs, output_hidden_states=True)
    replay = Replay(model, inputs)
    for layer, expected in enumerate(result.hidden_states):
        if layer == model.depth and model.architecture.final_norm:
            norm = model.network.get_submodule(model.architecture.final_norm)
            torch.testing.assert_close(norm(replay.states[layer]), expected)
        else:
            torch.testing.assert_close(replay.states[layer], expected)


@pytest.mark.parametrize("family", FAMILIES)
@torch.inference_mode()
def test_replay_without_a_span_is_the_model_without_those_blocks(family):
    model = classifier(family)
    inputs = token_batch()
    full = Replay(model, inputs)
    for first in range(1, model.depth + 1):
        for last in range(first, model.depth + 1 if first > 1 else model.depth):
            kept = [b for b in range(1, model.depth + 1) if not first <= b <= last]
            with only_blocks(model.network, model.architecture, kept), caches_off(model.network):
                expected = model.network(**inputs).logits
            got = full.finish(full.without(first, last)).logits
            torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(model.network(**inputs).logits, primary(full.result), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_known_family_passes_the_self_check(family):
    assert list(faults(classifier(family))) == []


@torch.inference_mode()
def test_replay_on_another_state_is_not_the_recorded_one():
    """With a key-value cache left on, replay is right on its own state and wrong on any other."""
    model = classifier("gpt2")
    first, second = Replay(model, token_batch(seed=0)), Replay(model, token_batch(seed=1))
    got = first.run(second.states[0], 1, model.depth)
    torch.testing.assert_close(got, second.states[-1])
    assert not torch.allclose(got, first.states[-1])


@pytest.mark.parametrize("family", ["bert", "roberta", "albert", "xlnet", "distilbert", "deberta-v2"])
@torch.inference_mode()
def test_multiple_choice_models_replay_too(family):
    model = load(random_network(family, "choice"), tokenizer=word_tokenizer(family))
    inputs = {name: value.view(2, 2, -1) for name, value in token_batch(rows=4).items()}
    replay = Replay(model, inputs)
    composed = replay.run(replay.states[0], 1, model.depth)
    torch.testing.assert_close(replay.finish(composed).logits, model.network(**inputs).logits)
    assert list(faults(model)) == []


def test_blocks_that_do_not_exist_are_refused_with_the_range():
    replay = Replay(classifier("bert"), token_batch())
    with pytest.raises(InputError, match=r"Blocks 3\.\.9 .* blocks 1\.\.4"):
        replay.run(replay.states[0], 3, 9)


def test_replay_leaves_the_network_as_it_was():
    model = classifier("bert")
    inputs = token_batch()
    with torch.inference_mode():
        before = model.network(**inputs).logits
        replay = Replay(model, inputs)
        replay.finish(replay.states[2])
        assert torch.equal(model.network(**inputs).logits, before)
    assert all("forward" not in vars(b) for b in block_modules(model.network.base_model, model.architecture))
    assert all(not b._forward_hooks for b in block_modules(model.network.base_model, model.architecture))


def test_gradients_flow_through_replay():
    model = classifier("bert")
    replay = Replay(model, token_batch())
    state = replay.states[2].detach().requires_grad_()
    replay.finish(replay.run(state, 3, 4)).logits.sum().backward()
    assert state.grad is not None
    assert state.grad.abs().sum() > 0


def test_a_module_with_a_forward_of_its_own_gets_it_back():
    from layerscope.models.replay import answering_with

    module = torch.nn.Linear(2, 2)
    with answering_with(module, "instead"):
        assert module(None) == "instead"
    assert "forward" not in vars(module)
    own = module.forward = lambda state: "spread"  # as accelerate puts one on every module of a spread network
    with answering_with(module, "instead"):
        assert module(None) == "instead"
    assert module.forward is own
