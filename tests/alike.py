"""Figures are the same if their words, settings and data are."""

import json
import math


def same(a, b):
    """Equal, NaN being equal to NaN."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[k], b[k]) for k in a)
    return a == b


def assert_same(first, second):
    assert type(first) is type(second)
    assert first.words() == second.words()
    assert json.loads(json.dumps(first.settings())) == json.loads(json.dumps(second.settings()))
    assert same(first.data(), second.data())
