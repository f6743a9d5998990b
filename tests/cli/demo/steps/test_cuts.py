"""The steps of the demo that cut the tuned model."""

import layerscope as ls
from layerscope.cli.demo import stage as demo_stage
from layerscope.cli.demo import steps as demo_cuts
from tests.helpers.cli import DEMO_SCORED


def test_where_no_block_can_go_the_least_loss_is_taken_and_said(played):
    stage = demo_stage.Stage(played.settings, played.out)
    advice = ls.advise(stage.tuned[0], stage.task, **DEMO_SCORED)
    advice.choice = ls.LayerPlan(range(1, stage.base.depth + 1))
    plan, row, why = demo_cuts._plan(advice, 0.01)
    cuts = advice.frame[advice.frame["savable"] & (advice.frame["removed"] > 0)]
    assert len(plan.keep) < stage.base.depth
    assert row["chosen_on"] == cuts["chosen_on"].max()
    assert why.startswith("No block can go")
