"""The steps of the demo say what was measured."""

from transformers import AutoModelForSequenceClassification

import layerscope as ls
from layerscope.cli.demo import stage as demo_stage
from layerscope.cli.demo import steps as demo_steps
from tests.helpers.cli import DEMO_SCORED, numbers_in


def test_what_is_said_is_what_was_measured(played):
    found = {each.step: " ".join(each.findings) for each in played.done}
    stage = demo_stage.Stage(played.settings, played.out)
    scores = [ls.evaluate(model, stage.task, **DEMO_SCORED) for model in stage.tuned]
    assert numbers_in(found["tune"])[:2] == [round(score, 3) for score in scores]
    reps = [ls.extract(model, stage.task, **DEMO_SCORED) for model in (stage.tuned[0], stage.base)]
    cka = ls.compare(*reps, measure="cka").values
    assert f"{cka[1, 1]:.2f} at layer 1 and {cka[4, 4]:.2f} at layer 4" in found["layers"]
    curve = ls.truncation_curve(stage.tuned[0], stage.task, **DEMO_SCORED).frame
    assert f"has accuracy {curve['score'].iloc[-1]:.3f}" in found["cuts"]
    smaller = ls.load(str(played.out / demo_steps.SMALLER))
    assert smaller.depth < stage.base.depth
    score = ls.evaluate(smaller, stage.task, **DEMO_SCORED)
    assert f"accuracy {score:.3f} where it has {scores[0]:.3f}" in found["smaller"]
    size = (played.out / demo_steps.SMALLER / "model.safetensors").stat().st_size
    assert f"{size / 1e6:.1f} MB" in found["smaller"]
    network = AutoModelForSequenceClassification.from_pretrained(played.out / demo_steps.SMALLER)
    assert network.config.num_hidden_layers == smaller.depth
