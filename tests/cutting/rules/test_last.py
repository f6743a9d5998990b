"""The last blocks."""

from searches import Made, gone

from layerscope.cutting.rules.last import Last


def test_the_top_goes():
    plans = Last().plans(Made(4, [1, 3], max_span=1))
    assert gone(plans, 4) == [(4,), (2, 3, 4)]
    assert [plan.head for plan in plans] == [3, 1]
