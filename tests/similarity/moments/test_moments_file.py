"""Moments in a folder."""

import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from layerscope.errors import DataError
from layerscope.similarity.moments import Moments
from tests.similarity.views import fed, rows


def test_save_and_load(tmp_path):
    views = rows()
    moments = fed(views, [20], exact=True, debiased=True, pairs=[(0, 1)])
    again = Moments.load(moments.save(tmp_path / "m"))
    assert torch.equal(again.scatter(0, 1), moments.scatter(0, 1))
    assert again.hsic(0, 1) == moments.hsic(0, 1)
    assert again.n == 200
    again.update([v[:10] for v in views])
    assert again.merge(moments).n == 210 + 200
    (tmp_path / "m" / "moments.json").write_text("{")
    with pytest.raises(DataError, match="is not JSON"):
        Moments.load(tmp_path / "m")
    with pytest.raises(DataError, match="no readable moments"):
        Moments.load(tmp_path / "elsewhere")


@pytest.fixture
def saved(tmp_path):
    return fed(rows(), [20], exact=True, debiased=True, pairs=[(0, 1)]).save(tmp_path / "m")


@pytest.mark.parametrize("field", ["format", "n", "weight", "widths", "debiased", "exact"])
def test_a_field_of_another_type_is_a_sentence(field, saved):
    text = (saved / "moments.json").read_text()
    for value in ("x", None, {}, [None], [-1], 1.5, -1, float("nan"), [1 << 40] * 3, 10**30):
        if field == "weight" and value in (1.5, 10**30):
            continue
        (saved / "moments.json").write_text(json.dumps({**json.loads(text), field: value}))
        with pytest.raises(DataError, match=r"damaged|format"):
            Moments.load(saved)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t.pop("sum.1"), "holds no sum.1"),
        (lambda t: t.pop("product.0.1"), "not those of its pairs"),
        (lambda t: t.pop("quartic.0.0"), "not those of its pairs"),
        (lambda t: t.update({"sum.0": t["sum.0"][1:].clone()}), "sum.0 has shape"),
        (lambda t: t.update({"sum.0": t["sum.0"].float()}), "sum.0 holds F32"),
        (lambda t: t.update({"evil": torch.zeros(1)}), "tensor 'evil'"),
        (lambda t: t.update({"sum.x": torch.zeros(1)}), "tensor 'sum.x'"),
        (lambda t: t.update({"sum.99": torch.zeros(1)}), "a view that there is not"),
        (lambda t: t["product.0.1"].__setitem__((3, 0), torch.nan), "product.0.1, row 3 holds"),
    ],
)
def test_tensors_that_are_not_the_moments_are_a_sentence(change, reason, saved):
    tensors = load_file(saved / "moments.safetensors")
    change(tensors)
    save_file(tensors, saved / "moments.safetensors")
    with pytest.raises(DataError, match=reason):
        Moments.load(saved)


def test_moments_that_are_no_safetensors_or_lie_elsewhere_are_a_sentence(saved, tmp_path):
    (saved / "moments.safetensors").rename(tmp_path / "outside")
    (saved / "moments.safetensors").symlink_to(tmp_path / "outside")
    with pytest.raises(DataError, match="only files of a folder are read"):
        Moments.load(saved)
    (saved / "moments.safetensors").unlink()
    (saved / "moments.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(DataError, match="damaged or not a safetensors file"):
        Moments.load(saved)
