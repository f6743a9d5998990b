"""Parameters that are not part of a key: whatever they are, what is stored stays the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import layerscope as ls
from layerscope.store import Store
from tests.key_table import CALLS, changes, keys, pairs

pytestmark = pytest.mark.filterwarnings("ignore::layerscope.errors.LayerscopeWarning")

# What a training says of how it went, which is not its result.
ASIDE = ("seconds", "epoch_seconds", "seconds_per_epoch", "cached", "cache_limit", "checkpointing", "report_to")
_KEPT: dict[str, dict[str, Any]] = {}


def kept(name, change, tmp_path_factory, monkeypatch):
    """Everything that a call keeps in a fresh store: kind and key -> file -> content."""
    at = f"{name} {change}"
    if at not in _KEPT:
        home = tmp_path_factory.mktemp("fresh")
        monkeypatch.setenv("LAYERSCOPE_HOME", str(home))
        monkeypatch.chdir(home)
        getattr(ls, name)(**{**CALLS[name].base, **change})
        _KEPT[at] = {f"{e.kind} {e.key}": files(e.path) for e in Store().entries()}
    return _KEPT[at]


def files(folder: Path) -> dict[str, Any]:
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".safetensors":
            found[name] = load_file(path)
        elif path.suffix == ".json" and path.name != "artifact.json":
            found[name] = _result(json.loads(path.read_text(encoding="utf-8")))
    return found


def _result(value):
    if isinstance(value, dict):
        return {k: _result(v) for k, v in value.items() if k not in ASIDE}
    return value


def assert_same(one, other, tolerance):
    assert one.keys() == other.keys()
    for name, content in one.items():
        if isinstance(content, dict) and content and all(isinstance(v, torch.Tensor) for v in content.values()):
            assert content.keys() == other[name].keys()
            for part, tensor in content.items():
                torch.testing.assert_close(other[name][part], tensor, rtol=tolerance, atol=tolerance)
        else:
            assert other[name] == content, name


@pytest.mark.parametrize(("name", "parameter"), changes("neutral"))
def test_a_neutral_parameter_leaves_what_is_kept_as_it_is(name, parameter, tmp_path_factory, monkeypatch):
    call = CALLS[name]
    tolerance = 1e-4 if parameter in call.rounded else 0.0
    for first, second in pairs(call.neutral[parameter]):
        one, other = (kept(name, change, tmp_path_factory, monkeypatch) for change in (first, second))
        assert set(keys(name, second)) in (set(keys(name, first)), set())
        for key in one.keys() & other.keys():
            assert_same(one[key], other[key], tolerance)
        if keys(name, second):
            assert one.keys() & other.keys()
