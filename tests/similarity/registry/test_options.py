"""Options of measures: names and kinds come from the functions, and a wrong kind is a sentence."""

import numpy as np
import pytest

import layerscope as ls
from layerscope.errors import InputError
from layerscope.registry import MEASURES
from layerscope.similarity.registry import check_kind, keywords

X = np.random.default_rng(0).normal(size=(40, 4))
WRONG = [
    ("mutual_knn", "k", 2.5, "a whole number"),
    ("cknna", "k", "3", "a whole number"),
    ("neuron", "top_k", 1.5, "a whole number"),
    ("svcca", "keep", "0.9", "a number"),
    ("svcca", "keep", True, "a number"),
    ("cca", "allow_trivial", "no", "true or false"),
    ("svcca", "standardize", "no", "true or false"),
    ("cka_minibatch", "batch", 5.5, "a whole number"),
    ("rsa", "distance", 1, "a word"),
]


@pytest.mark.parametrize(("name", "option", "value", "said"), WRONG)
def test_a_value_of_the_wrong_kind_is_a_sentence(name, option, value, said):
    for call in (
        lambda: ls.measure(name)(X, X, **{option: value}),
        lambda: ls.compare([X], measure=name, **{option: value}),
    ):
        with pytest.raises(InputError, match=f"{option} is {value!r}; it must be {said}"):
            call()
    with pytest.raises(InputError, match=f"it must be {said}"):
        ls.compare([X], measure=["cka", name], **{f"{name}.{option}": value})


def test_every_option_has_a_kind_that_is_known():
    for measure in MEASURES.values():
        for function in (f for f in (measure.factor, measure.compute) if f is not None):
            for option, annotation in keywords(function).items():
                with pytest.raises(InputError, match=option):
                    check_kind(option, object(), annotation)


def test_annotations_may_be_classes_and_others_allow_anything():
    def plain(*, k, keep, table):
        """A measure of one's own, in a file whose annotations are not text."""

    plain.__annotations__ = {"k": int, "keep": float | None, "table": dict}
    kinds = keywords(plain)
    check_kind("table", object(), kinds["table"])
    check_kind("keep", None, kinds["keep"])
    for option in ("k", "keep"):
        with pytest.raises(InputError, match=option):
            check_kind(option, "3", kinds[option])


def test_numbers_of_numpy_and_none_are_taken():
    check_kind("k", np.int64(3), "int")
    check_kind("keep", np.float32(0.5), "float")
    check_kind("keep", 1, "float")
    check_kind("allow_trivial", np.True_, "bool")
    check_kind("top_k", None, "int | None")
    with pytest.raises(InputError, match="k is None; it must be a whole number"):
        check_kind("k", None, "int")


@pytest.mark.parametrize("tolerance", [-1.0, 0.0, 1.0, 2.0])
def test_a_tolerance_that_leaves_no_rank_is_a_sentence(tolerance):
    with pytest.raises(InputError, match=r"rank_tolerance is .*; it must be above 0 and below 1"):
        ls.measure("cca")(X, X, rank_tolerance=tolerance)
