"""What a model is, in a table."""

import re

import layerscope as ls
from tests.helpers.models import SMALL_LLAMA, save_random


def test_a_model_is_described_and_checked(tmp_path):
    save_random(tmp_path / "model", "llama", "next", **SMALL_LLAMA)
    described = ls.describe(str(tmp_path / "model"))
    assert described.facts["family"] == "llama"
    assert described.facts["self_check"] == "passed: its blocks can be run one by one"
    assert described.facts["parameters"] == sum(
        p.numel() for p in ls.load(str(tmp_path / "model")).network.parameters()
    )
    assert described.facts["float_type"] == "float32"
    assert re.match(
        r"weights 0\.0 GB; evaluate .*; heal with LoRA .*; tune all weights with", described.facts["memory"]
    )
    assert described.facts["on_24_GB"].startswith("evaluate, advise, heal with LoRA")
    assert described.made_from is None
    assert list(described.frame.columns) == ["what", "is"]
    assert isinstance(described, ls.Result)
    assert described.figures()[0].kind == "table"


def test_what_it_was_made_from_is_said(tmp_path):
    save_random(tmp_path / "model", "llama", "next", **SMALL_LLAMA)
    ls.cut_study(str(tmp_path / "model"), "first 2", save=tmp_path / "smaller")
    described = ls.describe(str(tmp_path / "smaller"))
    rows = dict(zip(described.frame["what"], described.frame["is"], strict=True))
    assert rows["plan"].startswith("keep 1-2, head on layer 2 (of the")
    assert described.made_from["steps"][0]["keep"] == [1, 2]
