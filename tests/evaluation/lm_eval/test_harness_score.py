import math
import pickle

import pytest

from layerscope.errors import InputError
from layerscope.evaluation.lm_eval import LIKELIHOOD, HarnessScore, score_of
from tests.helpers.models import language_model

ASKED = {"lm_eval": "0.4", "limit": None, "max_length": 64, "batch": 8}


def found(groups=None, **results):
    """What the harness gives: choices of 10 rows under every name, 20 under a group of two."""
    names = [name for name in results if name not in (groups or {})]
    return {
        "results": {
            name: {"alias": name, "acc,none": value, "acc_stderr,none": 0.1} for name, value in results.items()
        },
        "configs": {name: {"output_type": "multiple_choice", "test_split": "test"} for name in names},
        "n-samples": {name: {"effective": 10} for name in names},
        "n-shot": dict.fromkeys(names, 0),
        "versions": dict.fromkeys(names, 1.0),
        "higher_is_better": {name: {"acc": True} for name in results},
        "group_subtasks": groups or {},
    }


def test_one_task_is_a_number_with_its_interval():
    score = score_of(language_model("llama"), found(quiz=0.75), ASKED)
    assert (float(score), score.metric, score.n, score.kind) == (0.75, "acc", 10, LIKELIHOOD)
    assert score.interval == pytest.approx((0.75 - 0.196, 0.75 + 0.196))
    settings = score.provenance["settings"]
    assert (settings["versions"], settings["max_length"]) == ({"quiz": 1.0}, 64)
    again = pickle.loads(pickle.dumps(score))
    assert isinstance(again, HarnessScore)
    assert again.frame.equals(score.frame)


def test_several_tasks_have_no_number_in_common_and_a_group_has_its_own():
    model = language_model("llama")
    score = score_of(model, found(a=0.5, b=0.7), ASKED)
    assert math.isnan(score)
    assert score.frame["value"].tolist() == [0.5, 0.7]
    group = score_of(model, found({"both": ["a", "b"]}, both=0.6, a=0.5, b=0.7), ASKED)
    assert (float(group), group.n) == (0.6, 20)


def test_no_number_is_a_sentence():
    with pytest.raises(InputError, match="gave no number"):
        score_of(language_model("llama"), {**found(), "results": {"quiz": {"alias": "quiz"}}}, ASKED)
