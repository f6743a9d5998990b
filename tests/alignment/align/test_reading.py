"""Saved aligners: what was damaged or made up is a sentence."""

import json

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

import layerscope as ls
from layerscope.errors import InputError
from layerscope.registry import ALIGNERS
from tests.helpers.data import noisy_pair

FEW = {"steps": 3, "batch": 16, "hidden": 8}
OPTIONS = {"inn": FEW | {"couplings": 2}, "mlp": FEW}


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """An aligner of every method, as the header and the tensors of its file."""
    x, y = noisy_pair(n=60)
    folder, parts = tmp_path_factory.mktemp("aligners"), {}
    for method in ALIGNERS:
        path = ls.align(x, y, method=method, **OPTIONS.get(method, {})).save(folder / method)
        with safe_open(path, framework="pt") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
            parts[method] = json.loads(file.metadata()["layerscope"]), tensors
    return parts


def write(path, about, tensors):
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path, {"layerscope": json.dumps(about)})
    return path


def test_every_method_is_read_as_it_was(saved, tmp_path):
    x = noisy_pair(n=60)[0]
    for method, (about, tensors) in saved.items():
        again = ls.load_aligner(write(tmp_path / method, about, tensors))
        assert (again.method, again.report_["n"]) == (method, 60)
        assert np.isfinite(again(x)).all()


@pytest.mark.parametrize("field", ["format", "method", "options", "widths", "report"])
def test_a_field_of_another_type_is_a_sentence(field, saved, tmp_path):
    about, tensors = saved["linear"]
    for value in (3, "x", None, [], [1], {"a": []}, [0, 0], [-1, 4], [10**9, 10**9], [1.5, 2], ["4", "4"], True):
        if (field, value) in (("report", {"a": []}), ("options", {"a": []})):
            continue
        with pytest.raises(InputError, match=r"is damaged|is not an aligner"):
            ls.load_aligner(write(tmp_path / "a", {**about, field: value}, tensors))


@pytest.mark.parametrize("method", ["inn", "mlp", "linear", "svcca"])
def test_an_option_of_another_type_or_size_is_a_sentence(method, saved, tmp_path):
    about, tensors = saved[method]
    for name in about["options"]:
        for value in ("x", [1], {}, -1, 10**9, float("nan")):
            changed = {**about, "options": {**about["options"], name: value}}
            try:
                ls.load_aligner(write(tmp_path / "a", changed, tensors))
            except InputError as error:
                assert "damaged" in str(error)  # noqa: PT017


@pytest.mark.parametrize("method", sorted(ALIGNERS))
def test_tensors_that_are_not_the_aligners_are_a_sentence(method, saved, tmp_path):
    about, tensors = saved[method]
    for name, tensor in tensors.items():
        bad = tensor.clone().reshape(tensor.shape)
        bad[(-1,) + (0,) * (bad.ndim - 1)] = torch.nan
        row = len(bad) - 1
        with pytest.raises(InputError, match=rf"{name}, row {row} holds a value that is not a finite number"):
            ls.load_aligner(write(tmp_path / "a", about, {**tensors, name: bad}))
        with pytest.raises(InputError, match="is damaged"):
            ls.load_aligner(write(tmp_path / "a", about, {**tensors, name: tensor.to(torch.int32)}))
        if name in ("weight", "x_mean", "mean", "y_mean", "back"):
            without = {other: value for other, value in tensors.items() if other != name}
            for changed in (without, {**tensors, name: tensor[:-1].clone()}):
                with pytest.raises(InputError, match="is damaged"):
                    ls.load_aligner(write(tmp_path / "a", about, changed))


@pytest.mark.parametrize("header", ["", "[]", "3", "[" * 100_000, '{"format": "layerscope-aligner"}', '"\\ud800"'])
def test_a_header_that_is_none_is_a_sentence(header, saved, tmp_path):
    save_file({"a": torch.zeros(2)}, tmp_path / "a", {"layerscope": header})
    with pytest.raises(InputError, match=r"is damaged|is not an aligner"):
        ls.load_aligner(tmp_path / "a")
