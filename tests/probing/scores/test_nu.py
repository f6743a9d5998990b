"""nu from rows under many labellings: the plain formula for each, and the same from moments."""

import math

import numpy as np
import pytest
import torch

from layerscope.errors import InputError
from layerscope.probing.scores.nu import class_numbers, class_weights, nu_of_moments, nu_of_rows
from layerscope.similarity.moments import Moments
from tests.helpers.data import class_rows, plain_nu


@pytest.mark.parametrize("weighting", ["class", "rows"])
@pytest.mark.parametrize("sizes", [(0.5, 0.5), (0.8, 0.15, 0.05)])
def test_every_labelling_has_the_value_of_the_plain_formula(sizes, weighting):
    x, labels = class_rows(200, 7, sizes)
    labellings = np.stack([labels, *(np.random.default_rng(k).permutation(labels) for k in range(3))])
    values = nu_of_rows(torch.from_numpy(x).split, labellings, weighting)
    np.testing.assert_allclose(values, [plain_nu(x, each, weighting) for each in labellings], rtol=1e-9)
    one_hot = torch.nn.functional.one_hot(torch.from_numpy(labellings[1])).double()
    moments = Moments([7, len(sizes)], exact=True)
    moments.update([torch.from_numpy(x), one_hot], torch.from_numpy(class_weights(labellings[1], weighting)))
    assert nu_of_moments(moments, 0, weighting) == pytest.approx(values[1])


def test_many_classes_take_the_room_of_their_means_alone(monkeypatch):
    generator = np.random.default_rng(0)
    x, labels = generator.normal(size=(900, 4)), np.arange(900) % 300
    x += generator.normal(size=(300, 4))[labels]
    labellings = np.stack([labels, generator.permutation(labels), generator.permutation(labels)])
    monkeypatch.setattr(torch.nn.functional, "one_hot", None)  # no matrix of rows and classes is made
    for room in (1 << 24, 2 * 300 * 4, 1):
        monkeypatch.setattr("layerscope.probing.scores.nu._MEANS", room)
        for weighting in ("class", "rows"):
            values = nu_of_rows(torch.from_numpy(x).split, labellings, weighting)
            np.testing.assert_allclose(values, [plain_nu(x, each, weighting) for each in labellings], rtol=1e-9)


def test_rows_may_come_in_any_number_of_pieces():
    x, labels = class_rows(300, 5, (0.6, 0.4))
    rows = torch.from_numpy(x).float() + 1000  # a large offset costs no digits that float32 had
    pieces = nu_of_rows(lambda _: iter(rows.split(7)), labels[None])
    np.testing.assert_allclose(pieces, nu_of_rows(rows.split, labels[None]), rtol=1e-9)
    np.testing.assert_allclose(pieces, plain_nu(rows.double().numpy(), labels), rtol=1e-6)


def test_equal_class_means_have_no_value():
    rows = torch.full((20, 3), 0.1)
    assert math.isnan(nu_of_rows(rows.split, np.arange(20)[None] % 2)[0])


def test_class_numbers():
    assert class_numbers([7, 3, 7]).tolist() == [1, 0, 1]
    with pytest.raises(InputError, match="the rows are of 1 class only"):
        class_numbers([3, 3])
