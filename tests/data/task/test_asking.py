"""How a task asks a network."""

import pytest

from layerscope.data.task import PromptOptions
from layerscope.errors import InputError


def test_only_what_is_not_usual_is_told():
    assert PromptOptions().non_default() == {}
    assert PromptOptions(bos=True, stride=8).non_default() == {"bos": True, "stride": 8}
    assert PromptOptions(bos=False).non_default() == {"bos": False}


def test_mistakes_are_sentences():
    with pytest.raises(InputError, match="stride is 0"):
        PromptOptions(stride=0)
    with pytest.raises(InputError, match="no embedding 'max'"):
        PromptOptions(embedding="max")
