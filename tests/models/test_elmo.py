"""ELMo gives what plain NumPy gives, text by text; batches, padding and order change nothing."""

import elmo_by_hand as by_hand
import numpy as np
import pytest
import torch

from layerscope.models.elmo import Elmo, ElmoOptions, Norm, ProjectedLSTM, character_ids, positions, turned_around
from layerscope.models.elmo_files import published_weights

TEXTS = [
    ["The", "cat", "sat", "."],
    ["Ünïcödé", "extraordinarily-long-word", "x"],
    ["One"],
    ["a", "much", "longer", "text", "than", "the", "others", "has", "many", "more", "words", "in", "it"],
]


def network(options=by_hand.OPTIONS, seed=0):
    parsed = ElmoOptions.model_validate(options)
    arrays = by_hand.random_arrays(options, seed)
    made = Elmo(parsed)
    made.load_state_dict(published_weights(parsed, arrays.__getitem__))
    return made.eval(), arrays


def run(made, texts):
    """Layers 0..L of each text, without marks and padding."""
    longest = made.options.char_cnn.max_characters_per_token
    rows = [character_ids(words, longest) for words in texts]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(len(row)) for row in rows], batch_first=True)
    with torch.inference_mode():
        states = made(ids, mask)
    return [[state[k, 1 : len(words) + 1].numpy() for state in states] for k, words in enumerate(texts)]


@pytest.mark.parametrize("activation", ["relu", "tanh"])
@pytest.mark.parametrize("depth", [2, 4])
def test_the_whole_network_agrees_with_numpy(activation, depth):
    options = {
        "lstm": {**by_hand.OPTIONS["lstm"], "n_layers": depth},
        "char_cnn": {**by_hand.OPTIONS["char_cnn"], "activation": activation},
    }
    made, arrays = network(options)
    for words, layers in zip(TEXTS, run(made, TEXTS), strict=True):
        expected = by_hand.states(words, options, arrays)
        assert len(layers) == len(expected) == depth + 1
        for ours, theirs in zip(layers, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-5)


def test_both_clips_bite_in_what_is_compared():
    _, arrays = network()
    free = {**by_hand.OPTIONS, "lstm": {**by_hand.OPTIONS["lstm"], "cell_clip": 1e9, "proj_clip": 1e9}}
    for clip in ("cell_clip", "proj_clip"):
        only = {**free, "lstm": {**free["lstm"], clip: by_hand.OPTIONS["lstm"][clip]}}
        assert np.abs(by_hand.states(TEXTS[0], only, arrays)[1] - by_hand.states(TEXTS[0], free, arrays)[1]).max() > 0.1


def test_one_step_agrees_with_numpy():
    options = ElmoOptions.model_validate(by_hand.OPTIONS)
    made, arrays = network()
    lstm: ProjectedLSTM = made.layers[0].backwards
    own = {name: arrays[f"RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell/{name}"] for name in ("W_0", "B", "W_P_0")}
    width, dim = options.lstm.projection_dim, options.lstm.dim
    x = np.random.default_rng(1).normal(size=width)
    expected, _ = by_hand.lstm_step(x, np.zeros(width), np.zeros(dim), by_hand.OPTIONS, own)
    with torch.inference_mode():
        got = lstm(torch.tensor(x, dtype=torch.float32)[None, None])[0][0, 0]
    np.testing.assert_allclose(got, expected, atol=1e-6)


def test_without_clipping_torchs_own_kernel_gives_the_same():
    lstm = {**by_hand.OPTIONS["lstm"], "cell_clip": None, "proj_clip": None}
    torch.manual_seed(0)
    own = ProjectedLSTM(ElmoOptions.model_validate({**by_hand.OPTIONS, "lstm": lstm}).lstm)
    x = torch.randn(3, 7, 6)
    step_by_step, fused = own(x)[0], own.outputs(x)
    assert fused.grad_fn is not None
    np.testing.assert_allclose(fused.detach(), step_by_step.detach(), atol=1e-6)
    first, second = (torch.autograd.grad(out.square().sum(), list(own.parameters())) for out in (step_by_step, fused))
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("attention_heads", [None, 2])
def test_batch_padding_and_order_change_nothing(attention_heads):
    torch.manual_seed(0)
    lstm = {**by_hand.OPTIONS["lstm"], "attention_heads": attention_heads}
    made = Elmo(ElmoOptions.model_validate({**by_hand.OPTIONS, "lstm": lstm})).eval()
    together, turned = run(made, TEXTS), run(made, TEXTS[::-1])[::-1]
    for k, words in enumerate(TEXTS):
        alone = run(made, [words])[0]
        for layers in (together[k], turned[k]):
            for ours, theirs in zip(layers, alone, strict=True):
                np.testing.assert_allclose(ours, theirs, atol=1e-6)


@pytest.mark.parametrize("attention_heads", [None, 2])
def test_each_direction_sees_its_own_side_alone(attention_heads):
    torch.manual_seed(0)
    lstm = {**by_hand.OPTIONS["lstm"], "attention_heads": attention_heads}
    made = Elmo(ElmoOptions.model_validate({**by_hand.OPTIONS, "lstm": lstm})).eval()
    (one,), (other,) = run(made, [["a", "b", "c", "d"]]), run(made, [["a", "b", "X", "d"]])
    for before, after in zip(one[1:], other[1:], strict=True):
        changed = np.abs(before - after).reshape(4, 2, -1).max(axis=2) > 1e-7
        assert changed[:, 0].tolist() == [False, False, True, True]
        assert changed[:, 1].tolist() == [True, True, True, False]


def test_the_transformer_variant_agrees_with_a_plain_computation():
    torch.manual_seed(0)
    lstm = {**by_hand.OPTIONS["lstm"], "attention_heads": 2, "n_layers": 1}
    made = Elmo(ElmoOptions.model_validate({**by_hand.OPTIONS, "lstm": lstm})).eval()
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


def test_a_stateful_network_goes_on_where_the_batch_before_ended():
    """As the published code does: a long text in two batches is, from the left, the long text in one."""
    made, _ = network()
    words = TEXTS[3]
    whole = run(made, [words])[0]
    made.stateful = True

    def states(rows):
        with torch.inference_mode():
            return made(rows[None], torch.ones(1, len(rows)))

    ids = character_ids(words, made.options.char_cnn.max_characters_per_token)
    parts = states(ids[:6]), states(ids[6:])
    for layer, expected in enumerate(whole):
        ours = torch.cat([part[layer][0] for part in parts])[1:-1, :6].numpy()
        np.testing.assert_allclose(ours, expected[:, :6], atol=1e-6)  # the direction from the left
    again = states(ids[:6])
    assert (again[1] - parts[0][1]).abs().max() > 1e-3  # it depends on what came before
    made.stateful = False
    np.testing.assert_allclose(states(ids)[1][0, 1:-1].numpy(), whole[1], atol=1e-6)


def test_a_stateful_network_takes_batches_of_other_sizes():
    made, _ = network()
    made.stateful = True
    first = run(made, TEXTS)
    (one,) = run(made, TEXTS[:1])
    second = run(made, TEXTS)
    assert np.abs(one[1] - first[0][1]).max() > 1e-3
    assert all(np.isfinite(layers[-1]).all() for layers in second)
    made.stateful = True  # to set it is to begin anew
    np.testing.assert_allclose(run(made, TEXTS)[2][1], first[2][1], atol=1e-6)


def test_layer_0_is_the_word_by_itself_twice():
    made, _ = network()
    (one,), (other,) = run(made, [["cat", "sat"]]), run(made, [["dog", "sat"]])
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


def test_words_are_turned_around_and_padding_stays():
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0]])
    assert turned_around(mask).tolist() == [[2, 1, 0, 3], [3, 2, 1, 0], [0, 1, 2, 3]]


def test_a_norm_divides_by_the_deviation():
    x = torch.randn(3, 8, generator=torch.Generator().manual_seed(0)) * 1e-3
    ours, torchs = Norm(8)(x), torch.nn.functional.layer_norm(x, (8,), eps=1e-6)
    np.testing.assert_allclose(ours.std(dim=-1, correction=0).detach(), [1.0] * 3, atol=2e-3)
    assert (ours - torchs).abs().max() > 0.1


def test_positions_are_those_of_the_transformer():
    table = positions(4, 6)
    assert table[0].tolist() == [0, 1, 0, 1, 0, 1]
    assert float(table[3, 2]) == pytest.approx(np.sin(3 / 10000 ** (2 / 6)), abs=1e-6)
