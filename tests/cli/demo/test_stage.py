"""What the steps of the demo share."""

from dataclasses import replace

import layerscope as ls
from layerscope.cli.demo import stage as demo_stage
from tests.helpers.cli import DEMO_FOLDERS


def test_other_settings_are_another_demo(played):
    keys = [demo_stage.Stage(s, played.out).key for s in (played.settings, replace(played.settings, attended=9))]
    assert keys[0] == ls.read_record(played.out / DEMO_FOLDERS[0]).settings["demo"]
    assert keys[1] != keys[0]


def test_models_are_opened_on_the_device_and_in_the_float_type_that_were_asked_for(played):
    stage = demo_stage.Stage(replace(played.settings, dtype="bfloat16", device="cpu"), played.out)
    assert str(stage.base.network.dtype) == "torch.bfloat16"
    assert stage.key != demo_stage.Stage(played.settings, played.out).key
