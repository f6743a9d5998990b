"""Where a task and a head meet."""

import pandas
import pytest

import layerscope as ls
from layerscope.errors import InputError
from layerscope.evaluation.classification import ClassificationEvaluator
from layerscope.evaluation.embedding_similarity import EmbeddingSimilarityEvaluator
from layerscope.evaluation.evaluate import select_evaluator
from layerscope.evaluation.masked_lm import MaskedLMEvaluator
from layerscope.evaluation.multiple_choice import MultipleChoiceEvaluator
from layerscope.evaluation.perplexity import PerplexityEvaluator
from layerscope.evaluation.tagging import TaggingEvaluator
from tests.helpers.data import text_frame
from tests.helpers.models import random_network

TEXT = ls.task(text_frame(), kind="text")
SINGLE = ls.task(text_frame().assign(label=[0, 1] * 6))
PAIR = ls.task(pandas.DataFrame({"sentence1": ["a"] * 4, "sentence2": ["b"] * 4, "label": [0.5, 1.5, 2.5, 0.1]}))
CHOICE = ls.task(pandas.DataFrame({"text": ["a"] * 2, "endings": [["b", "c"]] * 2, "label": [0, 1]}), choices="endings")
TAGS = ls.task(pandas.DataFrame({"words": [["a"], ["b"]], "pos": [["X"], ["Y"]]}), tags="pos")
BARE = ls.task(text_frame())


@pytest.mark.parametrize(
    ("family", "kind", "task", "evaluator"),
    [
        ("bert", "classifier", SINGLE, ClassificationEvaluator),
        ("bert", "classifier", PAIR, ClassificationEvaluator),
        ("bert", "choice", CHOICE, ClassificationEvaluator),
        ("bert", "tags", TAGS, TaggingEvaluator),
        ("llama", "next", TEXT, PerplexityEvaluator),
        ("llama", "next", BARE, PerplexityEvaluator),
        ("llama", "next", CHOICE, MultipleChoiceEvaluator),
        ("bert", "masked", BARE, MaskedLMEvaluator),
        ("bert", "encoder", PAIR, EmbeddingSimilarityEvaluator),
    ],
)
def test_what_is_asked(family, kind, task, evaluator):
    assert select_evaluator(ls.load(random_network(family, kind)), task)[0] is evaluator


@pytest.mark.parametrize(
    ("family", "kind", "task", "sentence"),
    [
        ("bert", "spans", SINGLE, "gives the place of an answer in a text. Such a task goes with a classifier"),
        ("electra", "pretraining", TEXT, "tells which tokens of a text were replaced. .* a causal or a masked"),
        ("xlnet", "next", TEXT, "in any order"),
        ("bert", "masked", CHOICE, "a head for choices, or a causal language model"),
        ("llama", "next", TAGS, "token classification"),
    ],
)
def test_what_would_do_is_said(family, kind, task, sentence):
    with pytest.raises(InputError, match=sentence):
        select_evaluator(ls.load(random_network(family, kind)), task)
