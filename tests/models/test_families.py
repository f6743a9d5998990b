"""Every family of transformers that can be built small is right, or refused with a reason; there is nothing else."""

import pytest
from scripts import script


@pytest.mark.slow
def test_every_family_is_right_or_refused():
    found = list(script("docs/families.py").outcomes())
    slow = [outcome for outcome in found if outcome.what == "too slow to tell"]
    assert [outcome for outcome in found if outcome.what not in ("right", "refused") and outcome not in slow] == []
    assert len(slow) <= 3  # reference implementations of state-space models in plain torch
    assert all(outcome.reason for outcome in found if outcome.what == "refused")
    assert sum(outcome.what == "right" for outcome in found) > 100
