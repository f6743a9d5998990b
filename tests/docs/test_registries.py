"""The tables of what can be chosen are those of the registries."""

import pytest

from layerscope.registry import ALIGNERS, LAYER_SCORES, MEASURES, METHODS, RULES
from tests.helpers.cli import script

HOOK = script("docs/hooks/registries.py")


KNOWN = {
    "rules": RULES,
    "aligners": ALIGNERS,
    "methods": METHODS,
    "measures": MEASURES,
    "layer_scores": LAYER_SCORES,
}


@pytest.mark.parametrize("name", KNOWN)
def test_every_name_has_a_row(name):
    lines = HOOK.on_page_markdown(f"before\n\n<!-- registry: {name} -->\n\nafter").splitlines()
    assert (lines[0], lines[-1]) == ("before", "after")
    rows = lines[4:-2]
    assert [row.split("|")[1].strip(" `") for row in rows] == [row.split("`")[1] for row in rows]
    assert {row.split("`")[1] for row in rows} == set(KNOWN[name])
    assert len({row.replace("\\|", "").count("|") for row in rows}) == 1  # as many cells in every row
