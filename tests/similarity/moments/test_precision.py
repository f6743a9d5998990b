"""Where digits would be lost, and where they cost nothing to keep."""

import pytest
import torch

from layerscope.similarity.moments import column_sizes, float64_is_free, power_of_two


@pytest.mark.parametrize(("capability", "free"), [((9, 0), True), ((8, 0), True), ((8, 9), False), ((12, 0), False)])
def test_gpus_for_computing_make_products_in_float64(capability, free, monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    assert float64_is_free(torch.device("cuda")) == free
    assert not float64_is_free(torch.device("cpu"))


def test_columns_are_scaled_where_float32_would_lose_their_products():
    rows = torch.tensor([[3.0, 1e20, 0.0], [-5.0, 2.0, 0.0]])
    assert column_sizes(rows[:, [0, 2]]) is None
    assert torch.equal(column_sizes(rows), torch.tensor([4.0, 2.0**66, 1.0]))


@pytest.mark.parametrize(("numbers", "power"), [([3.0, -9.0], 8.0), ([0.3], 0.25), ([0.0], 1.0), ([], 1.0)])
def test_a_power_of_two_near_the_largest_number(numbers, power):
    assert power_of_two(torch.tensor(numbers)) == power
