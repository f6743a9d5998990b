"""How a task asks a network."""

import pytest

from layerscope.data.asking import Asking
from layerscope.errors import InputError


def test_only_what_is_not_usual_is_told():
    assert Asking().given() == {}
    assert Asking(bos=True, stride=8).given() == {"bos": True, "stride": 8}
    assert Asking(bos=False).given() == {"bos": False}


def test_mistakes_are_sentences():
    with pytest.raises(InputError, match="stride is 0"):
        Asking(stride=0)
    with pytest.raises(InputError, match="no embedding 'max'"):
        Asking(embedding="max")
