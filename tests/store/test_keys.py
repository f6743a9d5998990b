"""Keys: another spec is another key."""

import numpy as np
import pytest

from layerscope.store import digest, keys
from layerscope.store.keys import canonical, checksum, key_of

SPEC = {"a": 1, "b": "x"}


def test_any_change_of_the_spec_is_another_artifact():
    keys = {key_of("k", s) for s in (SPEC, {**SPEC, "a": 2}, {**SPEC, "c": None}, {"a": 1})}
    assert len(keys) == 4
    assert key_of("other", SPEC) != key_of("k", SPEC)
    assert digest("ab", "c") != digest("a", "bc")


def test_the_order_of_a_spec_does_not_matter_and_its_types_do():
    assert canonical({"b": 1, "a": [2]}) == canonical({"a": [2], "b": 1}) == '{"a":[2],"b":1}'
    assert len({key_of("k", {"a": value}) for value in (1, "1", 1.5, True, None, [1])}) == 6
    for value in (float("nan"), float("inf")):
        with pytest.raises(ValueError, match="not JSON compliant"):
            canonical({"a": value})
    with pytest.raises(TypeError, match="object is not plain data"):
        canonical({"a": object()})


def test_numbers_of_numpy_are_the_numbers_that_they_are():
    assert key_of("k", {"a": np.int64(5), "b": [np.float64(0.5)]}) == key_of("k", {"a": 5, "b": [0.5]})
    assert key_of("k", {"a": np.float32(0.5)}) == key_of("k", {"a": 0.5})
    assert key_of("k", {"a": np.bool_(True)}) == key_of("k", {"a": True})


def test_a_key_is_short_and_takes_any_text():
    assert len(digest("a")) == 32
    assert digest("a") == digest(b"a")
    assert digest("\ud800") != digest("\ud801")  # halves of a pair, as broken files have them
    assert len({digest(), digest(""), digest("", "")}) == 3


def test_a_checksum_sees_every_byte(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"0123456789")
    whole = checksum(tmp_path / "a")
    monkeypatch.setattr(keys, "_BLOCK", 3)
    assert checksum(tmp_path / "a") == whole
    (tmp_path / "a").write_bytes(b"0123456788")
    assert checksum(tmp_path / "a") != whole
