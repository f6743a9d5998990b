"""How much may be lost: amounts and shares, up and down."""

import math

import pytest

from layerscope.cutting.targets import Tolerance
from layerscope.errors import InputError


def test_amounts_and_shares():
    assert Tolerance.parse(0.01, "accuracy") == Tolerance(0.01)
    assert Tolerance.parse("0.01", "accuracy") == Tolerance(0.01)
    assert Tolerance.parse("5%", "accuracy") == Tolerance(0.05, relative=True)
    assert Tolerance.parse("5 %", "perplexity") == Tolerance.parse(0.05, "perplexity") == Tolerance(0.05, True)
    assert str(Tolerance.parse("5%", "accuracy")) == "5 %"
    assert str(Tolerance.parse(0.01, "f1")) == "0.01"
    for wrong in (-1, "a", math.nan, "-5%", math.inf):
        with pytest.raises(InputError, match="must be 0 or more"):
            Tolerance.parse(wrong, "accuracy")


def test_what_is_within():
    share = Tolerance.parse("5%", "perplexity")
    assert share.holds("perplexity", 20.0, 20.9)
    assert share.holds("perplexity", 20.0, 15.0)
    assert not share.holds("perplexity", 20.0, 21.1)
    assert not share.holds("perplexity", 20.0, math.nan)
    assert Tolerance(0.01).holds("accuracy", 0.9, 0.895)
    assert not Tolerance(0.01).holds("accuracy", 0.9, 0.885)
    assert Tolerance(0.1, relative=True).holds("accuracy", 0.9, 0.82)
