"""A copy of a model as a classifier: its own head where that fits, else a new one from the seed."""

import pandas
import pytest
import torch
from transformers.models.auto.modeling_auto import MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES as CLASSIFIERS

import layerscope as ls
from layerscope.errors import ModelError
from layerscope.evaluation.layer_heads import classifier_of
from tests.helpers.models import DECODERS, random_model, random_network, word_tokenizer

TEXTS = ["the file", "a list", "this value"] * 2


def task(labels, **columns):
    return ls.task(pandas.DataFrame({"text": TEXTS, "label": labels, **columns}))


THREE = task([0, 1, 2] * 2)


def test_a_head_that_fits_is_kept_and_the_model_is_not_touched():
    base = random_model(kind="classifier")
    copied = classifier_of(base, THREE)
    assert copied.network is not base.network
    for name, value in base.network.state_dict().items():
        assert torch.equal(value, copied.network.state_dict()[name])
    with torch.no_grad():
        copied.network.classifier.weight.zero_()
    assert base.network.classifier.weight.abs().sum() > 0
    assert copied.name == base.name
    assert copied.tokenizer is base.tokenizer


@pytest.mark.parametrize("family", ["bert", "roberta", "deberta-v2", "xlnet", "gpt2"])
def test_a_head_with_the_classes_in_another_order_is_put_into_the_tasks(family):
    base = random_model(family, "classifier")
    base.network.config.id2label = {0: "list", 1: "value", 2: "file"}
    named = task(["file", "list", "value"] * 2)
    copied = classifier_of(base, named)
    assert list(copied.network.config.id2label.values()) == ["file", "list", "value"]
    inputs = {"input_ids": torch.tensor([[2, 9, 8, 7, 3]])}
    with torch.no_grad():
        before, after = (each.network(**inputs).logits for each in (base, copied))
    torch.testing.assert_close(after, before[:, [2, 0, 1]])
    assert ls.evaluate(copied, named) == ls.evaluate(base, named)


def test_a_new_head_is_of_the_seed_and_leaves_the_random_state_alone():
    base = random_model()
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    one, same, other = (classifier_of(base, THREE, seed).network.classifier.weight for seed in (0, 0, 1))
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    again = classifier_of(random_model(kind="classifier"), THREE, new_head=True)
    assert not torch.equal(again.network.classifier.weight, random_model(kind="classifier").network.classifier.weight)


def test_another_number_of_classes_is_a_new_head_on_the_same_encoder():
    base = random_model(kind="classifier")
    copied = classifier_of(base, task(["no", "yes"] * 3)).network
    assert copied.config.id2label == {0: "no", 1: "yes"}
    assert copied.config.problem_type == "single_label_classification"
    for name, value in base.network.base_model.state_dict().items():
        assert torch.equal(value, copied.base_model.state_dict()[name]), name


def test_numbers_and_choices_have_heads_of_their_own():
    numbers = classifier_of(random_model(), task([0.5, 1.5, 2.5] * 2)).network
    assert (numbers.config.num_labels, numbers.config.problem_type) == (1, "regression")
    frame = pandas.DataFrame({"text": TEXTS, "options": [["of", "in"]] * 6, "label": [0, 1] * 3})
    choices = classifier_of(random_model(), ls.task(frame, text="text", choices="options", label="label"))
    assert type(choices.network).__name__ == "BertForMultipleChoice"
    with pytest.raises(ModelError, match=r"\(gpt2\) has no head for choices in transformers"):
        classifier_of(random_model("gpt2"), ls.task(frame, text="text", choices="options", label="label"))


@pytest.mark.parametrize("family", [name for name in DECODERS if name in CLASSIFIERS])
def test_a_decoder_gets_a_padding_token(family):
    base = random_model(family, pad_token_id=None)
    assert classifier_of(base, THREE).network.config.pad_token_id is not None
    assert base.network.config.pad_token_id is None


@pytest.mark.parametrize(
    ("family", "kind"), [("electra", "pretraining"), ("bert", "masked"), ("xlnet", "next"), ("gpt2", "next")]
)
def test_the_tasks_head_takes_the_place_of_a_pre_training_head(family, kind):
    frame = pandas.DataFrame({"text": ["a", "b"], "label": [0, 1]})  # as many classes as a config has by itself
    model = ls.load(random_network(family, kind), tokenizer=word_tokenizer(family))
    tuned = classifier_of(model, ls.task(frame))
    assert tuned.head == "classes"
    body = tuned.network.base_model.state_dict()
    assert all(torch.equal(body[name], tensor) for name, tensor in model.network.base_model.state_dict().items())
