"""What patches give back, against the goals: the command behind docs/results/patch.md."""

import argparse
import json

import pytest
import torch

import layerscope as ls
from layerscope.cutting import patch as patches
from layerscope.cutting.patch import Request, Variant, block_place
from layerscope.cutting.patch_texts import deal
from layerscope.cutting.plan import LayerPlan
from tests.helpers.cli import ROOT, script
from tests.helpers.data import random_texts, running_task
from tests.helpers.models import language_model, small_decoder

results = script("docs/results/patch.py")


def test_the_page_was_written_by_the_command():
    folder = ROOT / "docs/results"
    found = json.loads((folder / results.RESULTS).read_text(encoding="utf-8"))
    assert (folder / results.PAGE).read_text(encoding="utf-8") == results.page(found)


def test_spans_are_of_the_middle_third_and_were_not_seen():
    assert results.spans("other", 30, 3) == [(11, 13), (13, 15), (15, 17), (17, 19)]
    assert (14, 16) not in results.spans("SmolLM2-135M", 30, 3)
    assert (11, 13) not in results.spans("Qwen2.5-0.5B", 24, 3)


@pytest.mark.parametrize("family", ["llama", "gpt2"])
def test_the_form_of_replaceme_is_least_squares_on_what_the_matrix_gives(family):
    model = language_model(family)
    texts = deal(model, running_task(), max_length=16)
    place = block_place(model, 1)
    request = Request(Variant(LayerPlan([1, 4])), place, 3)
    (moments,) = patches.gathered(texts.solving, model, [request])
    fold = results.multiplied(moments, request, 0.01)
    given, wanted = [], []
    hook = place.module.register_forward_hook(lambda m, args, out: given.append(out[0].double()))
    with torch.inference_mode():
        for item in texts.solving.encoded():
            ids = torch.as_tensor(item.ids)[None]
            states = model.network(input_ids=ids, output_hidden_states=True, use_cache=False).hidden_states
            wanted.append(states[3][0].double() - (states[1][0].double() - given[-1]))
    hook.remove()
    x, y, eye = torch.cat(given), torch.cat(wanted), torch.eye(model.width, dtype=torch.float64)
    strength = 0.01 * float(x.square().sum()) / model.width
    left, right = torch.cat([x, strength**0.5 * eye]), torch.cat([y, strength**0.5 * eye])
    by_map = torch.linalg.lstsq(left, right).solution.T
    weight = fold.weight.T if place.transposed else fold.weight
    torch.testing.assert_close(weight.double(), by_map @ place.old.double(), rtol=1e-4, atol=1e-5)
    if place.constant:
        torch.testing.assert_close(fold.bias.double(), by_map @ place.module.bias.double(), rtol=1e-3, atol=1e-6)


def options(**changes):
    given = {
        "limit": None,
        "max_length": 16,
        "scored": 8,
        "spans": 1,
        "device": None,
        "steps": 2,
        "task": [],
        "batch": 4,
    }
    return argparse.Namespace(**{**given, **changes})


def test_a_tiny_model_goes_through_every_part(tmp_path, monkeypatch):
    model = ls.save(small_decoder(num_hidden_layers=5), tmp_path / "tiny")
    for name, seed in (("text", 0), ("test", 1), ("other", 2)):
        lines = random_texts(40, seed, most=20)
        (tmp_path / f"{name}.txt").write_text("\n".join(lines))
    monkeypatch.setattr(results, "SIZES", (1, 2))
    monkeypatch.setattr(results, "LEAST", -9.0)
    monkeypatch.setitem(results.GOALS, "1 blocks", ("one", 0.5))
    monkeypatch.setitem(results.GOALS, "1 blocks, other", ("one elsewhere", 0.5))
    monkeypatch.setitem(results.GOALS, "2 blocks", ("two", 0.5))
    monkeypatch.setitem(results.GOALS, "2 blocks, other", ("two elsewhere", 0.5))
    paths = {name: str(tmp_path / f"{name}.txt") for name in ("text", "test", "other")}
    kept = dict(results.decoders(options(models=[("tiny", str(model))], **paths), {}))
    assert {key.split("/")[2] for key in kept} >= {"1 blocks", "2 blocks"}
    for case in kept.values():
        assert set(case["nll"]) == {"whole", "cut", "patched", "replaceme"}
        assert case["kl_other"]["whole"] == pytest.approx(0, abs=1e-6)
        assert case["kl_other"]["cut"] > 0
    assert not list(results.decoders(options(models=[("tiny", str(model))], **paths), kept))
    said = results.page(kept)
    assert "| tiny | " in said
    assert "| one elsewhere | 50% |" in said


def test_a_family_with_a_norm_in_the_way_has_no_other_form(tmp_path, monkeypatch):
    model = ls.save(language_model("gemma3_text"), tmp_path / "normed")
    for name, seed in (("text", 0), ("test", 1), ("other", 2)):
        (tmp_path / f"{name}.txt").write_text("\n".join(random_texts(40, seed, most=20)))
    monkeypatch.setattr(results, "SIZES", (1,))
    paths = {name: str(tmp_path / f"{name}.txt") for name in ("text", "test", "other")}
    kept = dict(results.decoders(options(models=[("normed", str(model))], **paths), {}))
    assert kept
    assert all(set(case["nll"]) == {"whole", "cut", "patched"} for case in kept.values())
    monkeypatch.setitem(results.GOALS, "1 blocks", ("one", 0.5))
    monkeypatch.setitem(results.GOALS, "1 blocks, other", ("one elsewhere", 0.5))
    assert "| - |" in results.page(kept)


def test_tables_hold_what_was_found_beside_the_goals():
    kept = {
        "classifiers/a/sst2/half": {"keep": 6, "whole": 0.9, "cut": 0.5, "patched": 0.86},
        "classifiers/a/sst2/two thirds": {"keep": 8, "whole": 0.9, "cut": 0.5, "patched": 0.88},
        "embeddings/b/stsb/8": {"keep": 8, "whole": 0.9, "own": 0.5, "mean": 0.6, "patched": 0.8},
        "lora/c/11-16/50": {"plain": 3.2, "patched": 3.1},
    }
    said = results.page(kept)
    assert "| a | sst2 | 6 | 90.0 | 50.0 | 86.0 | 4.0 | at most 5: met |" in said
    assert "| a | sst2 | 8 | 90.0 | 50.0 | 88.0 | 2.0 | at most 1: not met |" in said
    assert "| b | stsb | 8 | 90.0 | 60.0 | 80.0 | 67% | 50%: met |" in said
    assert "| c | 11-16 | 50 | 3.2000 | 3.1000 |" in said
