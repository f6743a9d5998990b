"""The same on a GPU as on a CPU."""

import pytest
import torch

import layerscope as ls
from layerscope.extraction import extract
from layerscope.extraction.encoding import encode
from layerscope.extraction.forward import Pooling, Runner
from layerscope.extraction.pooling import Reading
from tests.helpers.models import FAMILIES, random_network, word_tokenizer

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("family", FAMILIES)
def test_every_pool_of_every_family(family, task, corpus):
    cpu, gpu = (
        ls.load(random_network(family, "encoder").to(device), tokenizer=word_tokenizer(family))
        for device in ("cpu", "cuda")
    )
    for pool in ("cls", "mean", "last", "tokens", "words"):
        data = corpus if pool == "words" else task
        a, b = (ls.extract(m, data, pool=pool, store=False) for m in (cpu, gpu))
        assert a.rows.difference(b.rows) is None
        for layer in a.layers:
            assert b[layer].device.type == "cpu"
            torch.testing.assert_close(a[layer], b[layer], rtol=1e-3, atol=1e-4)
    a, b = (ls.attentions(m, task) for m in (cpu, gpu))
    for one, two in zip(a[3], b[3], strict=True):
        torch.testing.assert_close(one, two, rtol=1e-3, atol=1e-4)


def test_two_runs_give_the_same_numbers(task):
    model = ls.load(random_network("bert", "encoder").to("cuda"), tokenizer=word_tokenizer())
    one, two = (ls.extract(model, task, pool="mean", store=False) for _ in range(2))
    assert all(torch.equal(one[layer], two[layer]) for layer in one.layers)


def test_real_exhaustion_of_memory_halves_the_batch(caplog):
    import pandas

    frame = pandas.DataFrame({"text": [f"the file {'of the value ' * 20}{i}" for i in range(3000)]})
    shape = {"hidden_size": 512, "intermediate_size": 2048, "num_attention_heads": 8}
    model = ls.load(random_network("bert", "encoder", **shape).to("cuda"), tokenizer=word_tokenizer())
    expected = ls.extract(model, frame, limit=50, store=False)
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(min(1.0, (torch.cuda.memory_allocated() + 8e8) / total))
    try:
        reps = ls.extract(model, frame, store=False, batch_tokens=10**7)
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    assert "Out of memory; going on with" in caplog.text
    torch.testing.assert_close(reps[4][:50], expected[4], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("pool", ["cls", "mean", "words"])
def test_neither_copies_nor_pooling_make_the_host_wait(pool, corpus):
    model = ls.load(random_network("bert", "encoder").to("cuda"), tokenizer=word_tokenizer())
    reading = Reading(pool, subword="mean") if pool == "words" else Reading(pool)
    packed = Runner(model, None, reading).pack_rows(encode(model, corpus.split(), reading))
    torch.cuda.set_sync_debug_mode("error")
    try:
        arrays = packed.on_device()
        texts, time = arrays["input_ids"].shape
        rows = Pooling(arrays, time)(torch.ones(texts, time, 8, device="cuda"))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert bool((rows == 1).all())


def test_rows_in_the_store_are_those_in_memory(task, monkeypatch):
    monkeypatch.setattr(extract, "_PIECE", 1000)  # several pieces
    model = ls.load(random_network("bert", "encoder").to("cuda"), tokenizer=word_tokenizer())
    kept, stored = (ls.extract(model, task, pool="mean", store=store, batch_tokens=40) for store in (False, True))
    assert kept.rows.difference(stored.rows) is None
    for layer in kept.layers:
        torch.testing.assert_close(stored[layer], kept[layer])
