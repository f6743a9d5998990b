"""Plans as other tools take them; both count blocks from 0."""

import pytest
import yaml

from layerscope.cutting.plan import LayerPlan, printed_as
from layerscope.errors import LayerscopeError

PLAN = LayerPlan([1, 2, 3, 7, 9, 10])


def test_mergekit_gets_half_open_ranges_that_hold_the_kept_blocks():
    recipe = yaml.safe_load(printed_as("mergekit", PLAN, "org/model", 10))
    sources = [source for part in recipe["slices"] for source in part["sources"]]
    assert {source["model"] for source in sources} == {"org/model"}
    kept = [block + 1 for source in sources for block in range(*source["layer_range"])]
    assert tuple(kept) == PLAN.keep
    assert recipe["merge_method"] == "passthrough"


def test_llama_cpp_gets_what_goes():
    assert printed_as("llama.cpp", PLAN, "org/model", 10) == "--prune-layers 3,4,5,7"


@pytest.mark.parametrize(
    ("tool", "plan", "sentence"),
    [
        ("mergekit", LayerPlan(range(1, 11)), "removes none"),
        ("llama.cpp", LayerPlan([]), "keeps no block"),
        ("mergekit", LayerPlan([12]), r"blocks 1\.\.10"),
        ("merge", PLAN, "mergekit"),
    ],
)
def test_what_cannot_be_said_is_a_sentence(tool, plan, sentence):
    with pytest.raises(LayerscopeError, match=sentence):
        printed_as(tool, plan, "org/model", 10)
