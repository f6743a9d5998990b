import json

import pytest

from layerscope.errors import ModelError
from layerscope.tuning.training_job import RESULT, read_result

GOOD = {
    **{"strategy": "full", "method": {"name": "adapter", "size": 4}, "seed": 0, "score": 0.5, "best_epoch": 1},
    **{"epochs": [{"epoch": 1.0, "score": 0.5, "loss": 0.7}], "metric": "accuracy", "majority": 0.5, "seconds": 1},
    **{"seconds_per_epoch": 1, "cached": True, "parameters": 10, "trainable": 1},
}


def test_a_training_is_read_as_it_was_written_with_whatever_else_it_noted(tmp_path):
    (tmp_path / RESULT).write_text(json.dumps({**GOOD, "tokens": 512}))
    found = read_result(tmp_path)
    assert {name: found[name] for name in GOOD} == GOOD
    assert found["tokens"] == 512
    assert (found["base"], found["head"], found["learned"]) == (None, None, [])  # as 0.1 left them


@pytest.mark.parametrize("change", [{"seed": -1}, {"parameters": -1}, {"score": "good"}, {"epochs": [{"epoch": 1.0}]}])
def test_what_no_training_writes_is_refused(change, tmp_path):
    (tmp_path / RESULT).write_text(json.dumps({**GOOD, **change}))
    with pytest.raises(ModelError, match=r"training.json is damaged .*tune again"):
        read_result(tmp_path)
