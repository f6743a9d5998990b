"""What a network's head is, told by its class."""

import pytest
import transformers
import zoo

import layerscope as ls
from layerscope.models.heads import WORDS, class_of, head_of

KINDS = {
    ("bert", "classifier"): "classes",
    ("bert", "choice"): "choices",
    ("bert", "tags"): "tags",
    ("bert", "spans"): "spans",
    ("xlnet", "spans"): "spans",
    ("bert", "masked"): "masked",
    ("bert", "pretraining"): "masked",
    ("electra", "masked"): "masked",
    ("electra", "pretraining"): "replaced",
    ("xlnet", "next"): "permuted",
    ("gpt2", "next"): "next",
    ("openai-gpt", "next"): "next",
    ("llama", "next"): "next",
    ("opt", "next"): "next",
    ("bert", "encoder"): "none",
    ("llama", "encoder"): "none",
}


@pytest.mark.parametrize(("family", "kind"), KINDS)
def test_the_kind_of_a_head(family, kind):
    network = zoo.network(family, kind)
    assert head_of(network) == KINDS[family, kind]
    model = ls.load(network)
    assert model.head in WORDS
    assert model.has_head == (kind != "encoder")
    assert model.multiple_choice == (kind == "choice")


def test_a_head_of_no_known_kind_is_one_all_the_same():
    config = zoo.config("gpt2")
    assert head_of(transformers.GPT2DoubleHeadsModel(config)) == "other"


def test_the_class_that_a_config_names():
    config = zoo.config("bert", architectures=["BertForMaskedLM"])
    assert class_of(config) is transformers.BertForMaskedLM
    for names in (None, [], ["NoSuchClass"], ["BertTokenizer"], ["RobertaForMaskedLM"], ["AutoModel"]):
        config.architectures = names
        assert class_of(config) is None
