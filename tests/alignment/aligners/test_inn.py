"""The invertible network: its like, and the way back."""

import json

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.torch import save_file

import layerscope as ls
from layerscope.errors import InputError
from tests.helpers.data import KNOWN_ROWS, LEARNED, known_maps, noisy_pair, relative_error


@pytest.mark.slow
def test_the_invertible_network_finds_its_like():
    errors = {m: relative_error("inn", m)[0] for m in ("procrustes", "linear", "cca", "svcca", "mlp", "inn")}
    inn = errors.pop("inn")
    assert inn < 0.02
    assert min(errors.values()) > 2 * inn
    x = known_maps()[0][KNOWN_ROWS:]
    _, aligner = relative_error("inn", "inn", steps=200)
    np.testing.assert_allclose(aligner.inverse(aligner(x)), x, atol=1e-4)


@pytest.mark.parametrize("truth", ["orthogonal", "linear"])
def test_there_is_a_way_back_from_what_it_learned(truth):
    error, aligner = relative_error(truth, "inn")
    assert error < LEARNED
    assert aligner.report_["round_trip"] < 1e-4


def test_so_there_is_after_a_linear_start():
    assert relative_error("linear", "inn", start="linear", steps=50)[1].report_["round_trip"] < 1e-4


def test_one_feature_has_no_halves():
    x, y = noisy_pair(n=50)
    with pytest.raises(InputError, match="features into two halves"):
        ls.align(x[:, :1], y[:, :1], method="inn")


@pytest.mark.parametrize(("d", "e"), [(5, 8), (8, 8)])
def test_the_way_back_holds_where_the_linear_map_has_lost_directions(d, e):
    """Y has two directions only, so most of the linear map is 0; what it keeps of them is far below its error."""
    generator = np.random.default_rng(0)
    x = generator.normal(size=(400, d))
    y = x[:, :2] @ generator.normal(size=(2, e)) + 0.01 * generator.normal(size=(400, e))
    linear = ls.align(x, y).error(x, y)["mse"]
    aligner = ls.align(x, y, method="inn", steps=50, pad=d != e)
    assert aligner.error(x, y)["mse"] < 1.02 * linear
    assert aligner.report_["round_trip"] < 1e-4


def test_a_file_reopens_with_its_version(tmp_path):
    x, y = noisy_pair(n=80)
    aligner = ls.align(x, y, method="inn", steps=30)
    path = aligner.save(tmp_path / "a.safetensors")
    with safe_open(str(path), framework="pt") as file:
        about = json.loads(file.metadata()["layerscope"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert (about["version"], about["options"]["start"]) == (2, "linear")
    again = ls.load_aligner(path)
    np.testing.assert_array_equal(again.inverse(again(x)), aligner.inverse(aligner(x)))
    save_file(tensors, path, {"layerscope": json.dumps({**about, "version": 99})})
    with pytest.raises(InputError, match="written in version 99 of the format"):
        ls.load_aligner(path)
    old = {**about, "method": "mlp", "options": {"start": "linear", "seed": 0}}
    save_file(tensors, path, {"layerscope": json.dumps({k: v for k, v in old.items() if k != "version"})})
    with pytest.raises(InputError, match="fit it again"):
        ls.load_aligner(path)
