import numpy as np
import pytest

import layerscope as ls
from layerscope.errors import InputError
from layerscope.tuning.strategy import name_of


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("(1, L, L)", (1, 12, 12)),
        ("full", (1, 12, 12)),
        ("(l*-2, l*, L)", (5, 7, 12)),
        ("(l*-2,l*,l*)", (5, 7, 7)),
        ("l* - 1, l*, l* + 2", (6, 7, 9)),
        ("(l*+1, L, L)", (8, 12, 12)),
        ("(L-1, L, L)", (11, 12, 12)),
        ("(3, 5, 9)", (3, 5, 9)),
        ("top-3", (10, 12, 12)),
        ("top-1", (12, 12, 12)),
        ("freeze-bottom-6", (7, 12, 12)),
        ("freeze-top-4", (1, 8, 12)),
        ("head-only", (None, None, 12)),
        ("top-0", (None, None, 12)),
        ("(m-2, m, L)", (5, 7, 12)),
        ("(m, L, L)", (7, 12, 12)),
    ],
)
def test_parsed_and_resolved(text, numbers):
    found = ls.Strategy.parse(text).resolve(12, best=7)
    assert (found.bottom, found.top, found.head) == numbers
    expected = () if numbers[0] is None else tuple(range(numbers[0], numbers[1] + 1))
    assert found.blocks == expected
    assert ls.Strategy.parse(str(found)).resolve(12) == found or numbers[0] is None


@pytest.mark.parametrize("given", [("l*-2", "l*", 12), ["l*-2", "l*", np.int64(12)]])
def test_bottom_top_and_head_may_be_given_one_by_one(given):
    assert ls.Strategy.parse(given) == ls.Strategy.parse("(l*-2, l*, 12)")
    assert name_of(given) == "(l*-2, l*, 12)"
    assert name_of("full") == "full"


def test_the_best_layer_is_a_whole_number_of_any_kind():
    asked = ls.Strategy.parse("(l*+1, L, L)")
    assert asked.resolve(12, best=np.int64(2)).blocks == tuple(range(3, 13))
    with pytest.raises(InputError, match=r"l\* is 2\.5; this model has layers 1\.\.12"):
        asked.resolve(12, best=2.5)


def test_a_strategy_is_a_value():
    assert ls.Strategy(1, 12, 12) == ls.Strategy.parse("full").resolve(12)
    assert str(ls.Strategy.parse("( l*-2 ,l*, L)")) == "(l*-2, l*, L)"
    assert ls.Strategy.parse(ls.Strategy(2, 3, 4)) == ls.Strategy(2, 3, 4)
    assert len({ls.Strategy(1, 2, 3), ls.Strategy(1, 2, 3)}) == 1


def test_embeddings_are_tuned_under_full_only():
    assert ls.Strategy(1, 12, 12).trains_embeddings(12)
    assert not ls.Strategy(1, 8, 8).trains_embeddings(12)
    assert not ls.Strategy(1, 8, 12).trains_embeddings(12)
    assert ls.Strategy(1, 8, 12, embeddings=True).trains_embeddings(12)
    assert not ls.Strategy(1, 12, 12, embeddings=False).trains_embeddings(12)


def test_wu_freezes_the_named_blocks_and_xie_the_embeddings_too():
    """Wu et al. 2020, appendix D: with the top frozen all else is tuned; with the bottom frozen nothing lies below."""
    top, bottom = (ls.Strategy.parse(f"freeze-{side}-4").resolve(12) for side in ("top", "bottom"))
    assert top.trains_embeddings(12)
    assert not bottom.trains_embeddings(12)
    assert not ls.Strategy.parse("(1, 8, 12)").resolve(12).trains_embeddings(12)
    assert str(top) == "(1, 8, 12) with embeddings"
    assert ls.Strategy.parse("(1, L, L) without embeddings").resolve(12) == ls.Strategy(1, 12, 12, embeddings=False)


def test_its_spec_is_plain_and_whole():
    assert ls.Strategy(2, 3, 4).spec() == {"bottom": 2, "top": 3, "head": 4, "embeddings": None}
    assert ls.Strategy(1, 4, 4, embeddings=True).spec() != ls.Strategy(1, 4, 4).spec()


def test_below_the_first_block_is_the_first_block(caplog):
    found = ls.Strategy.parse("(l*-2, l*, L)").resolve(12, best=2)
    assert (found.bottom, found.top) == (1, 2)
    assert "block 1 is taken instead" in caplog.text


@pytest.mark.parametrize(
    ("text", "best", "message"),
    [
        ("(l*, L, L)", None, "needs l"),
        ("(l*+1, L, L)", 12, "l. = 12 is the top layer"),
        ("(5, 3, 9)", None, "bottom is above its top"),
        ("(3, 5, 4)", None, "head is below its top"),
        ("(0, 5, 9)", None, "bottom is 0"),
        ("(1, 5, 13)", None, "head is 13; this model has blocks 1..12"),
        ("freeze-bottom-12", None, "bottom is 13"),
        ("(l*, L, L)", 13, "l. is 13"),
        ("top-13", None, "bottom is 0"),
    ],
)
def test_what_cannot_be_is_a_sentence(text, best, message):
    with pytest.raises(InputError, match=message):
        ls.Strategy.parse(text).resolve(12, best)


@pytest.mark.parametrize(
    ("text", "best", "nearest"),
    [
        ("(l*+1, L, L)", 12, "(12, 12, 12)"),
        ("(5, 3, 9)", None, "(3, 3, 9)"),
        ("(3, 5, 4)", None, "(3, 5, 5)"),
        ("(1, 14, 20)", None, "(1, 12, 12)"),
        ("top-13", None, "(1, 12, 12)"),
    ],
)
def test_the_nearest_that_can_be_is_named(text, best, nearest):
    with pytest.raises(InputError) as caught:
        ls.Strategy.parse(text).resolve(12, best)
    assert f"The nearest that this model can have is {nearest}." in str(caught.value)
    assert str(ls.Strategy.parse(nearest).resolve(12)) == nearest


def test_what_has_numbers_for_no_best_layer_is_refused_before_it_is_known(caplog):
    ls.Strategy.parse("(l*+1, L, L)").check(12)
    ls.Strategy.parse("(l*-11, l*, L)").check(12)
    assert not caplog.text
    with pytest.raises(InputError, match=r"no numbers for any l\* from 1 to 12"):
        ls.Strategy.parse("(l*+12, L, L)").check(12)
    with pytest.raises(InputError, match="bottom is above its top"):
        ls.Strategy.parse("(5, 3, 9)").check(12)


@pytest.mark.parametrize("text", ["fulll", "(1, 2)", "(a, b, c)", "(1, 2, 3, 4)", "", "freeze-bottom-x"])
def test_what_is_no_strategy_is_a_sentence(text):
    with pytest.raises(InputError, match="strategy"):
        ls.Strategy.parse(text)


def test_three_blocks_up_to_the_middle_of_a_shallow_model(caplog):
    strategy = ls.Strategy.parse("(m-2, m, L)")
    assert not strategy.needs_best
    assert strategy.resolve(24) == ls.Strategy(11, 13, 24)  # Xie et al. 2022, table 8
    assert strategy.resolve(2) == ls.Strategy(1, 2, 2)
    assert "m-2 is 0 with 2 blocks; block 1 is taken instead." in caplog.text
