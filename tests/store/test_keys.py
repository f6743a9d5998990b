"""Keys: another spec is another key."""

from layerscope.store import digest
from layerscope.store.keys import key_of

SPEC = {"a": 1, "b": "x"}


def test_any_change_of_the_spec_is_another_artifact():
    keys = {key_of("k", s) for s in (SPEC, {**SPEC, "a": 2}, {**SPEC, "c": None}, {"a": 1})}
    assert len(keys) == 4
    assert key_of("other", SPEC) != key_of("k", SPEC)
    assert digest("ab", "c") != digest("a", "bc")
