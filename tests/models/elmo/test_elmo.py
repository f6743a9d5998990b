"""ELMo gives what plain NumPy gives, text by text; batches, padding and order change nothing."""

import numpy as np
import pytest
import torch

from layerscope.models.elmo import Elmo, ElmoOptions, Norm, character_ids, positions
from tests.helpers.elmo import ELMO_OPTIONS, ELMO_TEXTS, elmo_network, elmo_states, states_by_hand


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("depth", [2, 4])
def test_the_whole_network_agrees_with_numpy(activation, depth):
    options = {
        "lstm": {**ELMO_OPTIONS["lstm"], "n_layers": depth},
        "char_cnn": {**ELMO_OPTIONS["char_cnn"], "activation": activation},
    }
    made, arrays = elmo_network(options)
    for words, layers in zip(ELMO_TEXTS, elmo_states(made, ELMO_TEXTS), strict=True):
        expected = states_by_hand(words, options, arrays)
        assert len(layers) == len(expected) == depth + 1
        for ours, theirs in zip(layers, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_both_clips_bite_in_what_is_compared():
    _, arrays = elmo_network()
    free = {**ELMO_OPTIONS, "lstm": {**ELMO_OPTIONS["lstm"], "cell_clip": 1e9, "proj_clip": 1e9}}
    for clip in ("cell_clip", "proj_clip"):
        only = {**free, "lstm": {**free["lstm"], clip: ELMO_OPTIONS["lstm"][clip]}}
        assert (
            np.abs(
                states_by_hand(ELMO_TEXTS[0], only, arrays)[1] - states_by_hand(ELMO_TEXTS[0], free, arrays)[1]
            ).max()
            > 0.1
        )


@pytest.mark.parametrize("attention_heads", [None, 2])
def test_batch_padding_and_order_change_nothing(attention_heads):
    torch.manual_seed(0)
    lstm = {**ELMO_OPTIONS["lstm"], "attention_heads": attention_heads}
    made = Elmo(ElmoOptions.model_validate({**ELMO_OPTIONS, "lstm": lstm})).eval()
    together, turned = elmo_states(made, ELMO_TEXTS), elmo_states(made, ELMO_TEXTS[::-1])[::-1]
    for k, words in enumerate(ELMO_TEXTS):
        alone = elmo_states(made, [words])[0]
        for layers in (together[k], turned[k]):
            for ours, theirs in zip(layers, alone, strict=True):
                np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("attention_heads", [None, 2])
def test_each_direction_sees_its_own_side_alone(attention_heads):
    torch.manual_seed(0)
    lstm = {**ELMO_OPTIONS["lstm"], "attention_heads": attention_heads}
    made = Elmo(ElmoOptions.model_validate({**ELMO_OPTIONS, "lstm": lstm})).eval()
    (one,), (other,) = elmo_states(made, [["a", "b", "c", "d"]]), elmo_states(made, [["a", "b", "X", "d"]])
    for before, after in zip(one[1:], other[1:], strict=True):
        changed = np.abs(before - after).reshape(4, 2, -1).max(axis=2) > 1e-7
        assert changed[:, 0].tolist() == [False, False, True, True]
        assert changed[:, 1].tolist() == [True, True, True, False]


def test_the_transformer_variant_agrees_with_a_plain_computation():
    torch.manual_seed(0)
    lstm = {**ELMO_OPTIONS["lstm"], "attention_heads": 2, "n_layers": 1}
    made = Elmo(ElmoOptions.model_validate({**ELMO_OPTIONS, "lstm": lstm})).eval()
    block = made.layers[0].backwards
    x = np.random.default_rng(2).normal(size=(5, 6))

    def linear(layer, y):
        return y @ layer.weight.detach().double().numpy().T + layer.bias.detach().double().numpy()

    def norm(y):
        return (y - y.mean(axis=-1, keepdims=True)) / (y.std(axis=-1, keepdims=True) + 1e-6)

    expected, y = x.copy(), norm(x)
    query, key, value = (linear(part, y) for part in (block.query, block.key, block.value))
    mixed = np.zeros_like(x)
    for head in range(2):
        own = slice(3 * head, 3 * head + 3)
        for place in range(5):
            scores = key[place:, own] @ query[place, own] / np.sqrt(3)
            share = np.exp(scores - scores.max())
            mixed[place, own] = (share / share.sum()) @ value[place:, own]
    expected = x + linear(block.output, mixed)
    expected = expected + linear(block.down, np.maximum(linear(block.up, norm(expected)), 0))
    sees = torch.ones(5, 5, dtype=torch.bool).triu()[None]
    with torch.inference_mode():
        got = block(torch.tensor(x, dtype=torch.float32)[None], sees)[0]
    np.testing.assert_allclose(got, norm(expected), atol=1e-5)


@pytest.mark.parametrize("changes", [{}, {"cell_clip": None, "proj_clip": None}, {"attention_heads": 2}])
def test_no_mask_is_a_mask_of_ones(changes):
    torch.manual_seed(0)
    options = {**ELMO_OPTIONS, "lstm": ELMO_OPTIONS["lstm"] | changes}
    made = Elmo(ElmoOptions.model_validate(options))
    words = torch.randn(3, 7, 6, generator=torch.Generator().manual_seed(1))
    without, masked = made.contextual(words), made.contextual(words, torch.ones(3, 7))
    for ours, theirs in zip(without, masked, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)
    stacks = list(made.layers.parameters())
    ours, theirs = (torch.autograd.grad(states[-1].square().sum(), stacks) for states in (without, masked))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_layer_0_is_the_word_by_itself_twice():
    made, _ = elmo_network()
    (one,), (other,) = elmo_states(made, [["cat", "sat"]]), elmo_states(made, [["dog", "sat"]])
    assert np.array_equal(one[0][:, :6], one[0][:, 6:])
    np.testing.assert_array_equal(one[0][1], other[0][1])
    assert one[0].shape == one[1].shape == (2, 12)


def test_characters_are_bytes_between_their_marks():
    ids = character_ids(["é", "abcdefgh"], longest=6)
    assert ids.tolist() == [
        [259, 257, 260, 261, 261, 261],
        [259, 0xC3 + 1, 0xA9 + 1, 260, 261, 261],
        [259, *(ord(letter) + 1 for letter in "abcd"), 260],
        [259, 258, 260, 261, 261, 261],
    ]


def test_a_norm_divides_by_the_deviation():
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(0)) * 1e-3
    ours, torchs = Norm(8)(x), torch.nn.functional.layer_norm(x, (8,), eps=1e-6)
    np.testing.assert_allclose(ours.std(dim=-1, correction=0).detach(), [1.0] * 3, atol=2e-3)
    assert (ours - torchs).abs().max() > 0.1


def test_positions_are_those_of_the_transformer():
    table = positions(4, 6)
    assert table[0].tolist() == [0, 1, 0, 1, 0, 1]
    assert float(table[3, 2]) == pytest.approx(np.sin(3 / 10000 ** (2 / 6)), abs=1e-6)
