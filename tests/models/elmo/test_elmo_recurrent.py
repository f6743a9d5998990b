"""ELMo's LSTMs: one step as in NumPy, torch's own kernel where nothing is clipped, states that are carried over."""

import numpy as np
import torch

from layerscope.models.elmo import ElmoOptions, ProjectedLSTM, RecurrentLayer, character_ids, turned_around
from tests.helpers.elmo import ELMO_OPTIONS, ELMO_TEXTS, elmo_network, elmo_states, lstm_step


def free(**changes):
    return ElmoOptions.model_validate(
        {**ELMO_OPTIONS, "lstm": ELMO_OPTIONS["lstm"] | {"cell_clip": None, "proj_clip": None} | changes}
    )


def test_torchs_kernel_and_the_published_steps_agree_where_no_clip_binds():
    """Weights that were learned by the one are opened by the other: the same layout, the same states."""
    torch.manual_seed(0)
    learned = RecurrentLayer(free().lstm, first=False)
    published = RecurrentLayer(free(cell_clip=3.0, proj_clip=3.0).lstm, first=False)
    bound = RecurrentLayer(free(cell_clip=0.01, proj_clip=3.0).lstm, first=False)
    for layer in (published, bound):
        layer.load_state_dict(learned.state_dict())
    x = torch.randn(3, 9, 12, generator=torch.Generator().manual_seed(1))
    assert learned.forwards.fused
    assert not published.forwards.fused
    with torch.inference_mode():
        ours, theirs, clipped = (layer(x, None) for layer in (learned, published, bound))
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
    assert (clipped - ours).abs().max() > 1e-2


def test_torchs_own_module_with_the_same_weights_gives_the_same():
    torch.manual_seed(0)
    layer = RecurrentLayer(free().lstm, first=True)
    module = torch.nn.LSTM(6, 10, proj_size=6, batch_first=True)
    with torch.no_grad():
        for parameter, weight in zip(module.parameters(), layer.forwards.torch_weights(), strict=True):
            parameter.copy_(weight)
        x = torch.randn(2, 5, 12)
        torch.testing.assert_close(layer(x, None)[..., :6], module(x[..., :6])[0])


def test_one_step_agrees_with_numpy():
    options = ElmoOptions.model_validate(ELMO_OPTIONS)
    made, arrays = elmo_network()
    lstm: ProjectedLSTM = made.layers[0].backwards
    own = {name: arrays[f"RNN_1/RNN/MultiRNNCell/Cell0/LSTMCell/{name}"] for name in ("W_0", "B", "W_P_0")}
    width, dim = options.lstm.projection_dim, options.lstm.dim
    x = np.random.default_rng(1).normal(size=width)
    expected, _ = lstm_step(x, np.zeros(width), np.zeros(dim), ELMO_OPTIONS, own)
    with torch.inference_mode():
        got = lstm(torch.tensor(x, dtype=torch.float32)[None, None])[0][0, 0]
    np.testing.assert_allclose(got, expected, atol=1e-6)


def test_without_clipping_torchs_own_kernel_gives_the_same():
    lstm = {**ELMO_OPTIONS["lstm"], "cell_clip": None, "proj_clip": None}
    torch.manual_seed(0)
    own = ProjectedLSTM(ElmoOptions.model_validate({**ELMO_OPTIONS, "lstm": lstm}).lstm)
    x = torch.randn(3, 7, 6)
    step_by_step, fused = own(x)[0], own.outputs(x)
    assert fused.grad_fn is not None
    np.testing.assert_allclose(fused.detach(), step_by_step.detach(), atol=1e-6)
    first, second = (torch.autograd.grad(out.square().sum(), list(own.parameters())) for out in (step_by_step, fused))
    for a, b in zip(first, second, strict=True):
        torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-4)


def test_a_stateful_network_goes_on_where_the_batch_before_ended():
    """As the published code does: a long text in two batches is, from the left, the long text in one."""
    made, _ = elmo_network()
    words = ELMO_TEXTS[3]
    whole = elmo_states(made, [words])[0]
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
    made, _ = elmo_network()
    made.stateful = True
    first = elmo_states(made, ELMO_TEXTS)
    (one,) = elmo_states(made, ELMO_TEXTS[:1])
    second = elmo_states(made, ELMO_TEXTS)
    assert np.abs(one[1] - first[0][1]).max() > 1e-3
    assert all(np.isfinite(layers[-1]).all() for layers in second)
    made.stateful = True  # to set it is to begin anew
    np.testing.assert_allclose(elmo_states(made, ELMO_TEXTS)[2][1], first[2][1], atol=1e-6)


def test_words_are_turned_around_and_padding_stays():
    mask = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1], [1, 0, 0, 0]])
    assert turned_around(mask).tolist() == [[2, 1, 0, 3], [3, 2, 1, 0], [0, 1, 2, 3]]
