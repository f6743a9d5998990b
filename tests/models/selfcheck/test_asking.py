import pandas
import pytest
import torch
from transformers import AutoConfig, AutoModel

import layerscope as ls
from layerscope.models.selfcheck import head_padding, is_causal
from tests.helpers.models import CONFIGS, VOCABULARY, random_network, word_tokenizer

TINY = {**CONFIGS["llama"], "vocab_size": len(VOCABULARY), "pad_token_id": 0}


def encoder(family):
    torch.manual_seed(0)
    return AutoModel.from_config(AutoConfig.for_model(family, **TINY)).eval()


@pytest.mark.parametrize(("family", "summary"), [("mistral", "last"), ("gpt_neox", "last"), ("mpnet", "first")])
def test_the_summary_token_of_an_unrecorded_family_is_one_that_sees_the_text(family, summary):
    """The tokenizer has a [CLS] in front of every text, which a causal model cannot use."""
    model = ls.load(encoder(family), tokenizer=word_tokenizer())
    assert model.architecture.summary == summary
    assert is_causal(model) == (summary == "last")
    texts = pandas.DataFrame({"text": ["the file", "a list of value", "return this"]})
    rows = ls.extract(model, ls.task(texts), store=False)[model.depth]
    assert torch.pdist(rows).min() > 1e-3


@pytest.mark.parametrize(
    ("family", "changes", "side"),
    [
        ("bert", {}, "right"),
        ("gpt2", {}, "right"),
        ("gpt2", {"pad_token_id": None}, "none"),
        ("gpt2", {"pad_token_id": -1}, "none"),
        ("xlnet", {}, "left"),
        ("xlnet", {"summary_type": "first"}, "right"),
        ("xlnet", {"summary_type": "mean"}, "none"),
    ],
)
def test_where_a_head_allows_padding(family, changes, side):
    assert head_padding(ls.load(random_network(family, **changes))) == side
