"""Which output stands for which class; more of it in test_exam.py, on whole exams."""

import numpy as np
import pytest

import layerscope as ls
from layerscope.errors import InputError
from layerscope.evaluation.label_order import has_default_names, head_names, outputs_of
from tests.helpers.data import text_frame
from tests.helpers.models import random_network


def named(*names):
    network = random_network("bert", labels=len(names))
    network.config.id2label = dict(enumerate(names))
    return ls.load(network)


def test_names_decide_and_default_names_mean_the_tasks_order():
    task = ls.task(text_frame().assign(label=["no", "yes"] * 6))
    assert outputs_of(named("Yes", "no"), task).tolist() == [1, 0]
    assert outputs_of(named("LABEL_0", "LABEL_1"), task).tolist() == [0, 1]
    assert has_default_names(named("LABEL_0", "LABEL_1"))
    assert head_names(named("a ", "b")) == ["a", "b"]
    with pytest.raises(InputError, match="not guessed"):
        outputs_of(named("a", "b"), task)
    assert np.array_equal(outputs_of(ls.load(random_network("bert", "choice")), _choices()), np.arange(0))


def test_names_that_are_not_counted_from_0_are_refused():
    opened = named("no", "yes")
    opened.network.config.id2label = {1: "no", 2: "yes"}
    with pytest.raises(InputError, match=r"has outputs 0\.\.1, and its config names outputs 1, 2"):
        outputs_of(opened, ls.task(text_frame().assign(label=["no", "yes"] * 6)))


def _choices():
    import pandas

    frame = pandas.DataFrame({"text": ["a"] * 2, "endings": [["b", "c"]] * 2, "label": [0, 1]})
    return ls.task(frame, choices="endings")
