"""The influence of blocks, against hidden states that the network itself gives."""

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError, LayerscopeWarning
from layerscope.similarity.influence import Influence, least_first
from tests.helpers.data import some_examples, text_frame, three_class_frame
from tests.helpers.models import Recurrent, language_model, random_model, with_lengths
from tests.similarity import reference


@torch.inference_mode()
def by_hand(opened, texts, special=False, parts=None):
    """1 - mean cosine of neighbouring raw layers over tokens, text by text; layers by hooks on the network's blocks.

    With `parts` the same for each of several lists of texts.
    """
    inputs, outputs = [[] for _ in range(opened.depth)], [[] for _ in range(opened.depth)]
    base = opened.network.base_model
    blocks = base.layers if hasattr(base, "layers") else base.encoder.layer

    def watch(k):
        def keep(_, given, options, output):
            inputs[k].append(given[0] if given else options["hidden_states"])
            outputs[k].append(output[0] if isinstance(output, tuple) else output)

        return keep

    hooks = [block.register_forward_hook(watch(k), with_kwargs=True) for k, block in enumerate(blocks)]
    counted = []
    for text in texts:
        encoded = opened.tokenizer(text, return_tensors="pt", return_special_tokens_mask=True)
        mask = encoded.pop("special_tokens_mask")[0]
        counted.append(mask == 0 if not special else torch.ones_like(mask, dtype=torch.bool))
        opened.network(**encoded)
    for hook in hooks:
        hook.remove()

    def joined(states, chosen):
        return torch.cat([states[i].reshape(-1, states[i].shape[-1])[counted[i]] for i in chosen]).double().numpy()

    def influences(chosen):
        sides = zip(inputs, outputs, strict=True)
        return [1 - reference.cosine(joined(a, chosen), joined(b, chosen)) for a, b in sides]

    return influences(range(len(texts))) if parts is None else [influences(part) for part in parts]


@pytest.mark.parametrize("special", [False, True])
def test_an_encoder_on_labelled_texts(special):
    opened, frame = random_model("bert"), three_class_frame(20, 0)
    curve = ls.block_influence(opened, ls.task(frame), special=special)
    assert curve.layers == list(range(1, opened.depth + 1))
    np.testing.assert_allclose(curve.values, by_hand(opened, frame["text"], special), atol=1e-6)
    assert curve.frame.columns.tolist() == ["model", "layer", "influence"]
    assert curve.provenance["settings"] == {"pool": "tokens", "special": special, "max_length": 128}
    assert curve.provenance["data"]["n"] > 20
    assert curve.figures()[0].x_name == "block"


@pytest.mark.parametrize("special", [False, True])
def test_a_decoder_on_running_text_has_no_final_norm_in_it(special):
    """The last block's output is raw: Hugging Face's last hidden state is after the norm."""
    opened, frame = language_model("llama", bos="adds"), text_frame(10)
    task = ls.task(frame, kind="text")
    curve = ls.block_influence(opened, task, special=special, batch_tokens=64)
    np.testing.assert_allclose(curve.values, by_hand(opened, frame["text"], special), atol=1e-6)
    whole = ls.block_influence(opened, task, special=special)
    np.testing.assert_allclose(curve.values, whole.values, atol=1e-7)
    if not special:  # the same as `compare`, which leaves special tokens out too
        cosines = ls.compare(opened, measure="cosine", task=task, pool="tokens").values
        np.testing.assert_allclose(curve.values, 1 - np.diagonal(cosines, 1), atol=1e-7)


def test_intervals_leave_out_whole_texts():
    from scipy.stats import t

    from layerscope.similarity.jackknife import Grouping

    opened, frame = random_model("bert"), three_class_frame(44, 1)
    curve = ls.block_influence(opened, ls.task(frame), ci=0.9, seed=3)
    group = Grouping(np.arange(44), 3).groups_of(np.arange(44))
    left = np.array(by_hand(opened, frame["text"], parts=[np.flatnonzero(group != g) for g in range(20)]))
    half = t.ppf(0.95, 19) * np.sqrt(19 / 20 * ((left - left.mean(axis=0)) ** 2).sum(axis=0))
    np.testing.assert_allclose(curve.low, curve.values - half, atol=1e-6)
    np.testing.assert_allclose(curve.high, curve.values + half, atol=1e-6)
    with pytest.raises(InputError, match="An interval needs at least 40 texts"):
        ls.block_influence(opened, ls.task(three_class_frame(39, 1)), ci=0.9)


def test_a_block_that_does_nothing_has_no_influence_and_tiny_turns_keep_their_digits():
    opened = language_model("llama")
    layer = opened.network.model.layers[1]
    with torch.no_grad():
        layer.self_attn.o_proj.weight.zero_()
        layer.mlp.down_proj.weight.mul_(1e-6)
    task = ls.task(text_frame(10))
    tiny = ls.block_influence(opened, task)
    assert 0 < tiny.values[1] < 1e-8
    with torch.no_grad():
        layer.mlp.down_proj.weight.zero_()
    still = ls.block_influence(opened, task)
    assert still.values[1] == 0
    assert least_first(still)[0] == 2
    assert sorted(least_first(still)) == still.layers


def test_states_of_0_have_no_direction():
    opened = language_model("llama")
    with torch.no_grad():
        opened.network.model.embed_tokens.weight.zero_()
    with pytest.warns(LayerscopeWarning, match=r"The influence of block 1 .*is undefined: ([\d,]+) of \1 tokens are 0"):
        curve = ls.block_influence(opened, ls.task(text_frame(10)))
    assert np.isnan(curve.values[0])
    assert "no direction" in curve.provenance["warning"]
    assert least_first(curve) == []  # nothing leaves 0 again, so no block has an influence
    partly = ls.Curve("influence", curve.models, curve.layers, np.asarray([np.nan, 0.3, 0.1, 0.2]))
    assert least_first(partly) == [3, 4, 2]


def test_what_is_asked_for_wrongly(tmp_path):
    opened, task = random_model("bert"), ls.task(three_class_frame(10, 0))
    with pytest.raises(InputError, match="max_length is 2; a whole number of at least 3"):
        ls.block_influence(opened, task, max_length=2)
    with pytest.raises(InputError, match="ci is 95"):
        ls.block_influence(opened, task, ci=95)
    assert len(ls.block_influence(opened, task, limit=3).values) == opened.depth
    assert (ls.block_influence(opened, task).plot(tmp_path / "influence.png")) is not None


def test_a_block_that_changes_the_width_has_no_influence():
    mine = ls.wrap(Recurrent(), layers=["lstms.*"], embedding="embed", output="packed", encode=with_lengths)
    with pytest.warns(LayerscopeWarning, match="block 1 is undefined: its input has 6 numbers and its output 10"):
        curve = ls.block_influence(mine, some_examples(20))
    states = ls.extract(mine, some_examples(20), pool="tokens", store=False)
    assert np.isnan(curve.values[0])
    assert curve.values[1] == pytest.approx(1 - reference.cosine(states[1].numpy(), states[2].numpy()), abs=1e-6)


def test_what_may_go_is_tested_next():
    def step(kind):
        return Influence(
            "influence", ["m"], [1], np.array([0.1]), {"models": [{"name": "m", "class": kind}]}
        ).next_step()

    assert step("BertForMaskedLM").command == "advise"
    assert step("BertModel").command == "specialty"
