"""Findings of blocks."""

from dataclasses import replace

import numpy as np

import layerscope as ls


def test_blocks_are_sure_by_their_p_value():
    draw = np.random.default_rng(0).normal
    states = [draw(size=(400, 4))]
    for step in (0.1, 0.1, 2.0, 0.1, 0.1):
        states.append(states[-1] + step * draw(size=(400, 4)))
    split = ls.layer_blocks(ls.compare(states, measure="cka_debiased", ci=0.95), k=2)
    (told,) = split.findings()
    assert "2 blocks, cut before layer 3. " in told.text
    assert told.sure is (None if np.isnan(split.p_value) else bool(split.p_value < 0.05))
    assert replace(split, p_value=0.01).findings()[0].sure is True
    (gradual,) = replace(split, p_value=0.4).findings()
    assert gradual.sure is False
    assert "gradual change" in gradual.text
