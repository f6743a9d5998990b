"""What tuning changed, on models in which it is known."""

import copy

import numpy as np
import pandas
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError
from layerscope.results.finding import ANSWER
from tests.helpers.data import three_class_frame
from tests.helpers.models import random_model

pytestmark = pytest.mark.filterwarnings("ignore::layerscope.errors.LayerscopeWarning")
READING = {"limit": 40, "max_length": 16, "attended": 10}


@pytest.fixture(scope="module")
def task():
    return ls.task({"train": three_class_frame(60, 0), "validation": three_class_frame(40, 1)})


def perturbed(model, blocks, kind, seed=0):
    other, generator = copy.deepcopy(model), torch.Generator().manual_seed(seed)
    other.name = "perturbed"
    for block in blocks:
        weight = dict(other.blocks()[block - 1].named_parameters())[f"{kind}.weight"]
        with torch.no_grad():
            weight += 0.5 * weight.std() * torch.randn(weight.shape, generator=generator)
    return other


def test_the_blocks_that_were_changed_are_named(task):
    model = random_model()
    other = perturbed(model, [2, 3], "intermediate.dense")
    changes = ls.tuning_changes(model, other, task, **READING)
    assert changes.blocks == [2, 3]
    frame = changes.frame.set_index("layer")
    assert frame.loc[1, "states"] == pytest.approx(1)
    assert frame.loc[1, "attention"] == pytest.approx(1)
    assert frame.loc[4, "states"] < 0.9999
    assert frame["share"].sum() == pytest.approx(1)
    assert (frame.loc[[1, 4], "weights"] == 0).all()
    # The relative distance of a block, against all of its parameters in one vector.
    for block in (2, 3):
        a, b = (
            torch.cat([p.detach().flatten().double() for p in each.blocks()[block - 1].parameters()])
            for each in (model, other)
        )
        expected = (a - b).norm() / ((a.pow(2).sum() + b.pow(2).sum()) / 2).sqrt()
        assert frame.loc[block, "weights"] == pytest.approx(float(expected))
        assert frame.loc[block, "most"] == "intermediate.dense"
    said = [str(finding) for finding in changes.findings()]
    assert said[0].startswith("Blocks 2 and 3 carry 100% of the change of all blocks' weights")
    assert [finding.weight for finding in changes.findings()][:2] == [ANSWER, ANSWER]
    assert frame.loc[0, "most"] == ""  # no block makes it
    assert any("after tuning: they score" in each for each in said)
    assert [series.name for series in changes.figures()[0].series] == ["states", "weights", "attention"]


def test_one_block_is_named_in_the_singular(task):
    model = random_model()
    changes = ls.tuning_changes(model, perturbed(model, [3], "output.dense"), task, probes=False, **READING)
    assert changes.blocks == [3]
    assert any(str(each).startswith("Block 3 carries 100%") for each in changes.findings())
    assert "probe_after" not in changes.frame


def test_a_model_beside_itself_did_not_change(task):
    model = random_model()
    changes = ls.tuning_changes(model, model, task, probes=False, **READING)
    assert changes.blocks == []
    assert changes.frame["weights"].max() == 0
    said = " ".join(str(finding) for finding in changes.findings())
    assert "No weight of any block changed" in said
    assert "The states of no layer differ" in said


def test_a_change_that_three_digits_do_not_show_is_called_one(task):
    model = random_model()
    other = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in other.network.parameters():
            parameter.add_(1e-2 * parameter.std() * torch.randn(parameter.shape, generator=generator))
    changes = ls.tuning_changes(model, other, task, probes=False, **READING)
    assert 1 - 5e-4 < changes.frame["states"].min() < 1 - 1e-6
    told = next(str(each) for each in changes.findings() if "states" in str(each))
    assert told.startswith("Tuning hardly changed the states: CKA with those of")
    assert "most" not in told


def test_where_all_blocks_changed_the_range_is_told(task):
    model = random_model()
    changes = ls.tuning_changes(model, random_model(seed=1), task, probes=False, **READING)
    assert len(changes.blocks) > 2
    assert any("spread over the blocks" in str(finding) for finding in changes.findings())


def test_texts_without_labels_and_other_shapes():
    texts = pandas.DataFrame({"text": three_class_frame(40, 0)["text"]})
    model = random_model()
    wider = random_model(intermediate_size=64)
    changes = ls.tuning_changes(model, wider, ls.task(texts), **{**READING, "attended": 0})
    assert "only blocks of the same parameters can be compared" in changes.missing["weights"]
    assert changes.frame[["weights", "attention"]].isna().all().all()
    assert any("Not measured: weights" in str(finding) for finding in changes.findings())
    assert np.isfinite(changes.frame["states"]).all()
    with pytest.raises(InputError, match=r"have as many blocks, and .* has 4, .* 2"):
        ls.tuning_changes(model, random_model(num_hidden_layers=2), ls.task(texts))
