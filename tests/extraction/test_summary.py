"""What each layer holds, in plain numbers."""

import numpy as np
import pytest
from quick import model as model_of

import layerscope as ls


def test_the_summary_token_of_layer_0_is_one_vector(task):
    reps = ls.extract(model_of("bert"), task, store=False)
    assert reps.summary().frame["spread"][0] == pytest.approx(0, abs=1e-6)
    assert np.isnan(reps.summary().frame["top_direction"][0])
    assert reps.summary().frame["spread"][1] > 1e-3
