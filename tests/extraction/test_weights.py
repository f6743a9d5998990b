"""One forward that shows attention weights, from models that have them."""

import pytest
import zoo

import layerscope as ls
from layerscope.errors import ModelError


def test_a_model_that_gives_none_is_refused_by_name(task, monkeypatch):
    model = ls.load(zoo.network("bert", "encoder"), tokenizer=zoo.tokenizer())
    monkeypatch.setattr(type(model.network), "set_attn_implementation", lambda *_: None)
    with pytest.raises(ModelError, match=r"\(bert\) does not give attention weights"):
        ls.attentions(model, task)
