"""What the steps of the demo share."""

from dataclasses import replace

from tiny_demo import FOLDERS

import layerscope as ls
from layerscope.cli.demo import stage as demo_stage


def test_other_settings_are_another_demo(played):
    keys = [demo_stage.Stage(s, played.out).key for s in (played.settings, replace(played.settings, attended=9))]
    assert keys[0] == ls.read_record(played.out / FOLDERS[0]).settings["demo"]
    assert keys[1] != keys[0]
