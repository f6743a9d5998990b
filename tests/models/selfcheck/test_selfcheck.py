import pandas
import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoModelForMultipleChoice, AutoModelForSequenceClassification

import layerscope as ls
from layerscope.errors import ModelError
from layerscope.models import Replay, load
from layerscope.models.selfcheck import faults
from tests.helpers.models import VOCABULARY, random_network, token_batch, word_tokenizer

TINY = {
    "vocab_size": 60,
    "num_hidden_layers": 3,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "intermediate_size": 48,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


def encoder(family, **changes):
    torch.manual_seed(0)
    return AutoModel.from_config(AutoConfig.for_model(family, **{**TINY, **changes})).eval()


@pytest.mark.parametrize("family", ["mpnet", "mistral", "gpt_neox", "megatron-bert", "roformer", "qwen2"])
@torch.inference_mode()
def test_a_family_without_a_record_is_found_and_replays(family):
    model = load(encoder(family), tokenizer=word_tokenizer())
    assert model.architecture.generic
    inputs = {name: value.clamp(max=59) for name, value in token_batch().items()}
    replay = Replay(model, inputs)
    composed = replay.run(replay.states[0], 1, model.depth)
    torch.testing.assert_close(
        replay.finish(composed).last_hidden_state, model.network(**inputs).last_hidden_state, rtol=1e-4, atol=1e-5
    )


def test_a_model_whose_output_is_changed_between_blocks_is_caught():
    model = load(random_network("bert"))
    layers = model.network.bert.encoder.layer
    layers[1].register_forward_hook(lambda m, a, output: output * 1.5)
    # The hook stands before layerscope's, so the state that is recorded is the changed one: sound.
    assert list(faults(model)) == []
    layers[2].register_forward_pre_hook(lambda m, args: (args[0] + 1.0, *args[1:]))
    assert any("is not what block 3 receives" in fault for fault in faults(model))


def test_arguments_that_depend_on_the_tokens_are_caught(monkeypatch):
    model = load(random_network("bert"))
    encoder_module = model.network.bert.encoder
    original = encoder_module.forward

    def smuggle(hidden_states, attention_mask=None, **kwargs):
        mask = 0 if attention_mask is None else attention_mask
        return original(hidden_states, mask + hidden_states.mean(), **kwargs)

    monkeypatch.setattr(encoder_module, "forward", smuggle)
    model.network.set_attn_implementation("eager")
    assert any("depends on the tokens" in fault for fault in faults(model))


def test_a_block_that_counts_its_place_is_caught():
    """Removing a block shifts the others: a model that scales by position is not what replay computes."""
    model = load(random_network("bert"))
    encoder_module = model.network.bert.encoder

    def forward(hidden_states, attention_mask=None, **kwargs):
        from transformers.modeling_outputs import BaseModelOutputWithPast

        for place, block in enumerate(encoder_module.layer):
            hidden_states = block(hidden_states, attention_mask, place * torch.ones(1))
        return BaseModelOutputWithPast(last_hidden_state=hidden_states)

    for block in encoder_module.layer:
        inner = block.forward
        block.forward = lambda state, mask, place, inner=inner: inner(state, mask) * (1 + 0.1 * place)
    encoder_module.forward = forward
    assert any("with block" in fault and "removed" in fault for fault in faults(model))


def test_models_without_text_or_depth_are_refused():
    with pytest.raises(ModelError, match=r"vit.* is not a text model"):
        load(
            AutoModel.from_config(
                AutoConfig.for_model(
                    "vit",
                    hidden_size=16,
                    num_hidden_layers=1,
                    num_attention_heads=2,
                    intermediate_size=16,
                    image_size=16,
                )
            )
        )


def test_a_family_whose_forward_cannot_be_checked_is_refused_by_name(monkeypatch):
    net = encoder("mpnet")
    monkeypatch.setattr(net, "forward", lambda **_: 1 / 0)
    with pytest.raises(ModelError, match=r"is a mpnet, .* did not pass the self-check: .*ZeroDivisionError"):
        load(net)


TEXTS = ["the file is a list of value s", "return this string", "a", "not an object", "return that list"]


@pytest.mark.parametrize("family", ["fnet", "convbert", "nystromformer"])
def test_texts_of_a_family_that_sees_padding_are_never_padded(family):
    """Every row is what plain transformers give for its text alone."""
    net = encoder(family, vocab_size=len(VOCABULARY), embedding_size=32)
    model = load(net, tokenizer=word_tokenizer())
    assert model.architecture.unpadded
    assert not load(encoder("mpnet")).architecture.unpadded
    rows = ls.extract(model, ls.task(pandas.DataFrame({"text": TEXTS})), pool="mean", special=True, store=False)
    for row, text in zip(rows[3], TEXTS, strict=True):
        with torch.inference_mode():
            alone = net(**word_tokenizer()(text, return_tensors="pt")).last_hidden_state[0].mean(dim=0)
        torch.testing.assert_close(row, alone, rtol=1e-4, atol=1e-5)


def test_what_pads_is_refused_for_a_family_that_sees_padding():
    sizes = {**TINY, "vocab_size": len(VOCABULARY), "embedding_size": 32, "num_labels": 3}
    config = AutoConfig.for_model("convbert", **sizes)
    frame = pandas.DataFrame({"text": [*TEXTS, *TEXTS], "label": [0, 1, 2, 0, 1, 2, 0, 1, 2, 0]})
    model = load(AutoModelForSequenceClassification.from_config(config).eval(), tokenizer=word_tokenizer())
    together = ls.evaluate(model, frame)
    assert together == ls.evaluate(model, frame, batch_tokens=1)
    with pytest.raises(ModelError, match="training pads the texts of a batch"):
        ls.tune(model, frame, max_steps=1)
    choices = load(AutoModelForMultipleChoice.from_config(config).eval(), tokenizer=word_tokenizer())
    several = pandas.DataFrame(
        {"text": TEXTS, "choices": [["a file", "the list of value"]] * 5, "label": [0, 1, 0, 1, 0]}
    )
    with pytest.raises(ModelError, match="the choices of one text are padded"):
        ls.evaluate(choices, ls.task(several, choices="choices"))


@pytest.mark.parametrize("head", [True, False])
def test_longformer_pads_to_its_window_by_itself_and_its_classifier_marks_the_first_token(head):
    opener = AutoModelForSequenceClassification if head else AutoModel
    sizes = {**TINY, "vocab_size": len(VOCABULARY), "attention_window": 8, "max_position_embeddings": 130}
    torch.manual_seed(0)
    net = opener.from_config(AutoConfig.for_model("longformer", **sizes)).eval()
    model = load(net, tokenizer=word_tokenizer())
    assert not model.architecture.unpadded
    texts = [*TEXTS, "the file is a list of value s " * 6]
    rows = ls.extract(model, ls.task(pandas.DataFrame({"text": texts})), pool="mean", special=True, store=False)
    for place, text in enumerate(texts):
        inputs = word_tokenizer()(text, return_tensors="pt")
        count = inputs["input_ids"].shape[1]
        with torch.inference_mode():
            states = net(**inputs, output_hidden_states=True).hidden_states
        for layer in range(4):
            alone = states[layer][0, :count].mean(dim=0)
            torch.testing.assert_close(rows[layer][place], alone, rtol=1e-4, atol=1e-5)
    with pytest.raises(ModelError, match="does not give attention weights"):
        ls.attentions(model, ls.task(pandas.DataFrame({"text": TEXTS})))


def test_a_head_that_runs_the_blocks_otherwise_is_caught(monkeypatch):
    """A multiple-choice Longformer marks the tokens of the choice; the bare encoder would not know."""
    from layerscope.models import selfcheck

    sizes = {**TINY, "vocab_size": len(VOCABULARY), "attention_window": 8, "max_position_embeddings": 130}
    net = AutoModelForSequenceClassification.from_config(AutoConfig.for_model("longformer", **sizes)).eval()
    monkeypatch.setattr(selfcheck, "MARKS_SUMMARY", {})
    with pytest.raises(ModelError, match="its head lets the blocks run otherwise"):
        load(net, tokenizer=word_tokenizer())


def test_positions_that_start_after_the_padding_index_are_counted():
    model = load(encoder("mpnet", max_position_embeddings=40), tokenizer=word_tokenizer())
    assert model.positions == 38


def test_bigbirds_block_sparse_attention_is_refused_by_name_and_its_full_one_is_not():
    sparse = encoder("big_bird", max_position_embeddings=1024)
    with pytest.raises(ModelError, match=r"big_bird with attention_type='block_sparse' .*original_full"):
        load(sparse)
    assert sparse.attention_type == "block_sparse"
    full = encoder("big_bird", max_position_embeddings=1024, attention_type="original_full")
    assert load(full).depth == 3


def test_xlnets_attention_that_takes_one_text_only_is_refused_by_name():
    with pytest.raises(ModelError, match="xlnet with attn_type='uni' is not supported"):
        load(random_network("xlnet", attn_type="uni"))


def test_attention_that_changes_with_the_length_is_caught_and_left_as_it_was(monkeypatch):
    from layerscope.models import architecture

    monkeypatch.setattr(architecture, "REFUSED_SETTINGS", ())
    sparse = encoder("big_bird", max_position_embeddings=1024)
    kinds = [type(module) for module in sparse.modules()]
    with pytest.raises(ModelError, match=r"a short text changes|change the states"):
        load(sparse)
    assert sparse.attention_type == "block_sparse"
    assert [type(module) for module in sparse.modules()] == kinds


def test_a_short_text_that_changes_later_long_ones_is_caught():
    net = encoder("mpnet")
    block, inner = net.encoder.layer[0], net.encoder.layer[0].forward

    def forward(hidden_states, *args, **kwargs):
        block.short = getattr(block, "short", False) or hidden_states.shape[1] < 10
        output = inner(hidden_states, *args, **kwargs)
        return (output[0] * (2.0 if block.short else 1.0), *output[1:])

    block.forward = forward
    block.short = False
    with pytest.raises(ModelError, match="a short text changes what later long ones give"):
        load(net)
    assert block.short is False
