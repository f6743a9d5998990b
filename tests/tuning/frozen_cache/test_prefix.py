"""The frozen blocks' output: run once, the same as before, and in pieces that a kill cannot harm."""

from dataclasses import replace

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.tuning import frozen_cache
from layerscope.tuning.frozen_cache import PrefixStates
from tests.helpers.data import WORDS, three_class_frame
from tests.helpers.models import QUICK, random_model


def test_a_cache_that_is_too_large_is_not_made(task, caplog):
    training = ls.tune(random_model(), task, strategy="(4, 4, 4)", cache_limit=1e-9, **QUICK)
    assert not training.cached
    assert "it is computed in every epoch" in caplog.text


@pytest.mark.parametrize("choices", [False, True])
def test_the_states_are_those_of_an_extraction_in_any_number_of_shards(choices, monkeypatch):
    monkeypatch.setattr(frozen_cache, "_SHARD_TOKENS", 40)
    frame = three_class_frame(30, 0)
    if choices:
        options = [[WORDS[(k + c) % 3] for c in range(2 + i % 2)] for i, k in enumerate(frame["label"])]
        task = ls.task(frame.assign(options=options, label=0), choices="options", text="text", label="label")
    else:
        task = ls.task(frame)
    states = PrefixStates(random_model(), task.split("all"), 2, 32, "float32")
    cache = states.open()
    assert len(list(states.produce().glob("shard-*.safetensors"))) > 3
    reps = ls.extract(random_model(), task, pool="tokens", special=True, layers=[2], max_length=32)
    got = torch.cat([cache.item(place) for place in range(len(states.items))])
    torch.testing.assert_close(got, reps[2], rtol=1e-5, atol=1e-5)
    places = [3, 0, 7]
    batch = cache.batch(places, left=False)
    torch.testing.assert_close(cache.table(torch.device("cpu"))[cache.index(places, left=False)], batch)


def test_everything_that_decides_the_states_is_in_their_key(task):
    examples = task.split("train")
    keys = {
        PrefixStates(base, part, layer, length, dtype).key
        for base, part, layer, length, dtype in (
            (random_model(), examples, 2, 32, "float32"),
            (random_model("roberta"), examples, 2, 32, "float32"),
            (random_model(), examples.take(slice(9)), 2, 32, "float32"),
            (random_model(), replace(examples, texts=["a", *examples.texts[1:]]), 2, 32, "float32"),
            (random_model(), examples, 3, 32, "float32"),
            (random_model(), examples, 2, 16, "float32"),
            (random_model(), examples, 2, 32, "bfloat16"),
        )
    }
    assert len(keys) == 7


def test_shards_that_an_earlier_try_left_are_kept(task, tmp_path, monkeypatch):
    monkeypatch.setattr(frozen_cache, "_SHARD_TOKENS", 100)
    states = PrefixStates(random_model(), task.split("train"), 2, 32, "float32")
    states.build(tmp_path)
    files = sorted(tmp_path.glob("shard-*"))
    times = {file: file.stat().st_mtime_ns for file in files}
    files[1].unlink()
    states.build(tmp_path)
    assert sorted(tmp_path.glob("shard-*")) == files
    assert np.sum([file.stat().st_mtime_ns == times[file] for file in files]) == len(files) - 1
