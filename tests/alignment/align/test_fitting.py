"""Fittings: one aligner per place, kept under specs, networks side by side, rows read only where they are needed."""

import numpy as np
import torch

import layerscope as ls
from layerscope.alignment.align import Fitting, fit_all
from layerscope.alignment.aligners.inn import INN
from layerscope.store import NoKey, Store


class Rows:
    """Arrays with a name; how often they were read is counted."""

    def __init__(self, name, width=4):
        self.name, self.width, self.read = name, width, 0

    def spec(self):
        if not self.name:
            raise NoKey("these rows have no name")
        return {"name": self.name}

    def __getitem__(self, layer):
        self.read += 1
        generator = torch.Generator().manual_seed(layer)
        return torch.randn(60, self.width, generator=generator)

    @property
    def texts(self):
        return np.arange(60)


def test_there_is_one_aligner_per_place_as_align_gives_it():
    source, target = Rows("a"), Rows("b", 3)
    ((first, second),) = fit_all([Fitting(source, target, [(0, 1), (2, 2)], "linear")], "test")
    np.testing.assert_array_equal(first(source[0]), ls.align(source[0], target[1])(source[0]))
    np.testing.assert_array_equal(second(source[2]), ls.align(source[2], target[2])(source[2]))


def test_what_is_stored_is_not_fitted_again():
    fitting = [Fitting(Rows("a"), Rows("b"), [(0, 1)], "cca")]
    fit_all(fitting, "test")
    again = Fitting(Rows("a"), Rows("b"), [(0, 1)], "cca")
    fit_all([again], "test")
    assert (again.source.read, again.target.read) == (0, 0)
    assert again.key == fitting[0].key
    assert [entry.key for entry in Store().entries()] == [again.key]


def test_whatever_decides_the_aligners_is_in_the_key():
    fittings = [
        Fitting(Rows("a"), Rows("b"), [(0, 1)], "linear"),
        Fitting(Rows("b"), Rows("a"), [(0, 1)], "linear"),
        Fitting(Rows("a"), Rows("b"), [(1, 0)], "linear"),
        Fitting(Rows("a"), Rows("b"), [(0, 1), (1, 1)], "linear"),
        Fitting(Rows("a"), Rows("b"), [(0, 1)], "cca"),
        Fitting(Rows("a"), Rows("b"), [(0, 1)], "linear", seed=1),
        Fitting(Rows("a"), Rows("b"), [(0, 1)], "linear", options={"strength": 0.1}),
    ]
    assert len({fitting.key for fitting in fittings}) == len(fittings)
    assert Fitting(Rows("a"), Rows("b"), [(0, 1)], "linear", device="meta").key == fittings[0].key


def test_networks_of_several_places_are_fitted_side_by_side(monkeypatch):
    counts = []
    fit_many = INN.fit_many.__func__
    monkeypatch.setattr(
        INN,
        "fit_many",
        classmethod(lambda cls, a, sides, texts: counts.append(len(sides)) or fit_many(cls, a, sides, texts)),
    )
    places = [(0, 1), (1, 2), (2, 3)]
    fit_all([Fitting(Rows("a"), Rows("b"), places, "inn", options={"steps": 5})], "test")
    assert counts == [3]


def test_what_has_no_key_is_fitted_all_the_same():
    ((aligner,),) = fit_all([Fitting(Rows(""), Rows("b"), [(0, 1)], "linear")], "test")
    assert aligner.widths_ == (4, 4)
    assert not Store().entries()
