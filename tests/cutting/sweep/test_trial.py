"""Every plan in one pass gives what cutting gives."""

import numpy as np
import pytest

import layerscope as ls
from layerscope.cutting.curves import contiguous, truncations
from layerscope.cutting.sweep import Trial, sweep
from layerscope.errors import ModelError
from layerscope.evaluation.evaluate import make_evaluator
from tests.helpers.data import WORDS, labelled_frame
from tests.helpers.models import FAMILIES, random_classifier, random_model, random_network


@pytest.mark.parametrize("tokens", [40, 2000])  # 2,000: many pending states go through a block together
@pytest.mark.parametrize("family", FAMILIES)
def test_every_plan_in_one_pass_gives_what_cutting_gives(family, tokens):
    opened, data = random_classifier(family), labelled_frame()
    plans = [*truncations(4), *(ls.LayerPlan.skipped(4, i, j) for i, j in contiguous(4)), ls.LayerPlan([1, 3])]
    found = make_evaluator(opened, data, batch_tokens=tokens)
    together = sweep(found, plans, "test")
    for plan, logits in zip(plans, together, strict=True):
        try:
            smaller = ls.cut(opened, plan)
        except ModelError:
            assert family in ("modernbert", "deberta-v2")  # what cannot be saved is evaluated all the same
            continue
        expected = make_evaluator(ls.load(smaller, tokenizer=opened.tokenizer), data).logits()
        np.testing.assert_allclose(logits, expected, rtol=2e-3, atol=2e-4)


@pytest.mark.parametrize("family", ["bert", "albert", "xlnet"])
def test_multiple_choice(family):
    generator = np.random.default_rng(0)
    options = [list(generator.choice(WORDS, size=generator.integers(2, 4))) for _ in range(20)]
    data = ls.task(labelled_frame(20).assign(options=options, label=0), choices="options", text="text", label="label")
    opened = random_model(family, "choice")
    frame = ls.skip_map(opened, data).frame
    for row in frame.itertuples():
        assert ls.evaluate(ls.skip(opened, row.first, row.last), data) == row.score
    assert (frame["whole"] == ls.evaluate(opened, data)).all()


def test_prefixes_are_shared():
    """A twelve-block model: 298 of 572 block runs are left for the skip map, 12 for the curve."""
    opened = random_classifier("bert")
    deep = ls.load(random_network("bert", num_hidden_layers=12), tokenizer=opened.tokenizer)
    assert Trial(deep, [ls.LayerPlan.skipped(12, i, j) for i, j in contiguous(12)]).block_runs == 298
    assert Trial(deep, truncations(12)).block_runs == 12
