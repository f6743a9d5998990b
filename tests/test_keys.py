"""Keys: for every public function that uses the store, each parameter changes the key or does not change the result."""

import inspect

import numpy as np
import pytest

import layerscope as ls
from layerscope.store import Store
from tests.helpers.data import two_class_task
from tests.helpers.models import shared_classifier
from tests.key_table import CALLS, WITHOUT, changes, keys, pairs

pytestmark = pytest.mark.filterwarnings("ignore::layerscope.errors.LayerscopeWarning")


def parameters(name):
    """The names of a function's parameters, with what its **options may be."""
    call, named = CALLS[name], inspect.signature(getattr(ls, name)).parameters
    several = [p.name for p in named.values() if p.kind is p.VAR_KEYWORD]
    assert bool(several) == bool(call.options), f"{name} has **options that the table does not list, or none"
    return list(dict.fromkeys([*(p for p in named if p not in several), *call.options]))


def test_every_public_name_is_in_one_of_the_tables():
    assert sorted([*CALLS, *WITHOUT]) == sorted(ls.__all__)


@pytest.mark.parametrize("name", CALLS)
def test_every_parameter_changes_the_key_or_is_neutral(name):
    call = CALLS[name]
    known = {*call.keyed, *call.neutral}
    assert not set(parameters(name)) - known, "no change of the key and no entry among the neutral ones"
    assert not known - set(parameters(name)), "in the table, and no parameter"


@pytest.mark.parametrize("name", CALLS)
def test_the_keys_are_told_without_computing(name, home):
    assert keys(name, {}) == keys(name, {}) != []
    assert not Store().entries()


def test_rows_that_measures_need_are_asked_for_before_anything_is_computed(home):
    asked = keys("compare", {"baseline": False, "measure": ["cka", "mutual_knn"]})
    assert asked == keys("compare", {})
    assert len(asked) == 2
    assert not Store().entries()


@pytest.mark.parametrize(("name", "parameter"), changes("keyed"))
def test_another_value_is_another_key(name, parameter):
    for first, second in pairs(CALLS[name].keyed[parameter]):
        one, other = keys(name, first), keys(name, second)
        assert one
        assert other
        assert set(one) != set(other)


@pytest.mark.parametrize("name", [name for name in CALLS if "task" in CALLS[name].keyed])
def test_no_two_changes_have_one_key(name):
    """Each change is seen by itself: none stands for another."""
    seen = [frozenset(keys(name, second)) for change in CALLS[name].keyed.values() for _, second in pairs(change)]
    assert len(set(seen)) == len(seen)


# The two stale answers.


def test_a_training_is_not_scored_by_the_metric_of_another():
    base = CALLS["tune"].base
    found = {metric: ls.tune(**base, metric=metric) for metric in ("accuracy", "f1", None)}
    assert [found[m].metric for m in found] == ["accuracy", "f1", "accuracy"]
    assert found["accuracy"].path == found[None].path != found["f1"].path
    for metric in ("accuracy", "f1"):
        score = ls.evaluate(found[metric].model, two_class_task(), metric=metric, max_length=128)
        assert found[metric].score == pytest.approx(float(score))


def test_a_curve_of_trained_heads_has_the_values_of_its_metric():
    values = {}
    for metric in ("accuracy", "f1"):
        frame = ls.truncation_curve(shared_classifier(), two_class_task(metric=metric), mode="tuned", epochs=1).frame
        assert set(frame["metric"]) == {metric}
        values[metric] = frame["score"].to_numpy()
    assert not np.allclose(values["accuracy"], values["f1"])
    again = ls.truncation_curve(shared_classifier(), two_class_task(metric="accuracy"), mode="tuned", epochs=1).frame
    assert np.array_equal(again["score"], values["accuracy"])
