import pytest
import zoo
from quick import QUICK, model

import layerscope as ls


@pytest.mark.parametrize("family", [f for f in zoo.FAMILIES if ls.load(zoo.network(f)).anatomy.prefix])
def test_prefix_tuning_through_peft(family, task):
    training = ls.tune(model(family), task, method="prefix", size=3, **QUICK)
    assert training.trainable > 0
    assert 0 <= training.score <= 1
    assert type(training.model).__name__.startswith("Peft")
    assert not training.cached
