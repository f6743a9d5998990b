"""What a network's head is, told by its class."""

import pkgutil

import pytest
import transformers

import layerscope as ls
from layerscope.evaluation.evaluator import Evaluator
from layerscope.models.heads import HEADS, TASKS, class_of, head_of
from layerscope.tuning.objectives.base import Objective
from tests.helpers.models import random_config, random_network

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
    network = random_network(family, kind)
    assert head_of(network) == KINDS[family, kind]
    model = ls.load(network)
    assert model.head in HEADS
    assert model.has_head == (kind != "encoder")
    assert model.multiple_choice == (kind == "choice")


@pytest.mark.parametrize("head", HEADS.values(), ids=list(HEADS))
def test_what_a_record_names_is_there(head):
    assert set(head.evaluators) <= set(TASKS)
    assert bool(head.evaluators) == bool(head.tasks)
    for where in head.evaluators.values():
        assert issubclass(pkgutil.resolve_name(f"layerscope.evaluation.{where}"), Evaluator)
    if head.objective:
        assert issubclass(pkgutil.resolve_name(f"layerscope.tuning.objectives.{head.objective}"), Objective)
    if head.opener:
        assert hasattr(transformers, head.opener)


def test_every_kind_of_task_has_a_head():
    assert {kind for head in HEADS.values() for kind in head.evaluators} == set(TASKS)


def test_a_head_of_no_known_kind_is_one_all_the_same():
    config = random_config("gpt2")
    assert head_of(transformers.GPT2DoubleHeadsModel(config)) == "other"


def test_the_class_that_a_config_names():
    config = random_config("bert", architectures=["BertForMaskedLM"])
    assert class_of(config) is transformers.BertForMaskedLM
    for names in (None, [], ["NoSuchClass"], ["BertTokenizer"], ["RobertaForMaskedLM"], ["AutoModel"]):
        config.architectures = names
        assert class_of(config) is None
