"""Every family of transformers that can be built small is right, or refused with a reason; there is nothing else."""

import pytest
import transformers

from tests.helpers.cli import ROOT, script


@pytest.mark.slow
def test_every_family_is_right_refused_or_not_built_as_the_page_says():
    families = script("docs/families.py")
    outcomes = list(families.outcomes())
    assert [outcome for outcome in outcomes if outcome.what not in ("right", "refused", "not built")] == []
    assert [outcome.family for outcome in outcomes if not outcome.fields] == families.names()
    assert all(outcome.reason for outcome in outcomes if outcome.what != "right")
    assert sum(outcome.what == "right" for outcome in outcomes if not outcome.fields) > 160
    layered = [outcome for outcome in outcomes if outcome.fields]
    assert sum(outcome.what == "right" and not outcome.reason.startswith("not cut") for outcome in layered) > 40
    page = (ROOT / "docs" / "families.md").read_text(encoding="utf-8")
    if f"transformers {transformers.__version__} " in page:  # others have other families
        assert families.page(outcomes) == page
