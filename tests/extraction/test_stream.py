"""Streaming: every batch of several models goes to whoever wants it."""

import functools
import time
import weakref
from itertools import repeat

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.errors import DataError, InputError
from layerscope.extraction import loop
from layerscope.extraction.loop import Loop
from layerscope.extraction.pooling import Reading
from layerscope.extraction.stream import Streamer
from layerscope.models.architecture import block_modules
from layerscope.models.replay import caches_off, entering, state_of
from tests.helpers.models import NoWaiting, random_model


def test_states_that_are_not_finite_are_refused_with_their_place(task):
    model = random_model("bert")
    with torch.no_grad():
        model.network.encoder.layer[1].output.dense.bias[3] = float("inf")
    with pytest.raises(DataError, match=r"Layer 2 .* is not finite for row"):
        ls.extract(model, task, store=False)


def test_several_models_stream_over_the_same_batches(task):
    models = [random_model("bert"), random_model("roberta")]
    seen = []

    class Listener:
        def update(self, batch):
            assert [len(states) for states in batch.states] == [5, 5]
            seen.append((batch.rows.row, batch.states[0][4].clone(), batch.states[1][4].clone()))

    tally = ls.stream(models, task.split(), Listener(), pool="mean", batch_tokens=60)
    assert tally.rows == 7
    assert len(seen) > 1
    order = np.argsort(np.concatenate([rows for rows, _, _ in seen]))
    for place, model in enumerate(models, start=1):
        got = torch.cat([part[place] for part in seen])[torch.from_numpy(order)]
        expected = ls.extract(model, task, pool="mean", store=False)[4]
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


FAMILIES = ["bert", "roberta", "gpt2", "xlnet", "llama", "albert"]
POOLS = ["cls", "mean", "last", "tokens", "words"]


def plain_rows(family, model, texts, pool, subword):
    """Layer -> (rows, width): every text by itself, states by hooks, pooled by the plainest code."""
    rows = {layer: [] for layer in range(model.depth + 1)}
    for text in texts:
        batch = model.tokenizer(text, return_special_tokens_mask=True, return_offsets_mapping=True)
        special = np.asarray(batch["special_tokens_mask"], bool)
        spans = batch["offset_mapping"]
        length = len(special)
        if pool in ("cls", "last"):
            groups = [[0 if pool == "cls" and model.architecture.summary == "first" else length - 1]]
        elif pool == "words":
            ends = np.cumsum([len(word) + 1 for word in text.split()]) - 1
            starts = np.concatenate([[0], ends[:-1] + 1])
            tokens = [i for i in range(length) if not special[i] and spans[i][1] > spans[i][0]]
            groups = [[i for i in tokens if a < spans[i][1] <= b] for a, b in zip(starts, ends, strict=True)]
            groups = [{"last": g[-1:], "first": g[:1], "mean": g}[subword] for g in groups]
        else:
            real = np.flatnonzero(~special).tolist()
            groups = [[i] for i in real] if pool == "tokens" else [real]
        states = []
        blocks = block_modules(model.network, model.architecture)

        def before(_, args, kwargs, states=states):
            if not states:
                states.append(entering(args, kwargs))

        def after(_, args, kwargs, output, states=states):
            states.append(state_of(output))

        hooks = [blocks[0].register_forward_pre_hook(before, with_kwargs=True)]
        hooks += [block.register_forward_hook(after, with_kwargs=True) for block in dict.fromkeys(blocks)]
        with torch.no_grad(), caches_off(model.network):
            typed = {"token_type_ids": torch.tensor([batch["token_type_ids"]])} if family in ("bert", "xlnet") else {}
            model.network(input_ids=torch.tensor([batch["input_ids"]]), **typed)
        for hook in hooks:
            hook.remove()
        for layer, state in enumerate(states):
            own = state[:, 0] if model.architecture.time_first else state[0]
            rows[layer] += [own[group].mean(dim=0) for group in groups]
    return {layer: torch.stack(some) for layer, some in rows.items()}


@pytest.mark.parametrize("family", FAMILIES)
def test_rows_are_those_of_a_plain_loop_with_hooks(family, task, monkeypatch):
    """For every pool, whatever the windows and the batches, and whichever side the tokenizer would pad on."""
    model = random_model(family)
    texts = list(task.split().texts)
    monkeypatch.setattr(loop, "WINDOW", 5)
    for pool in POOLS:
        for subword in ("last", "first", "mean") if pool == "words" else ("last",):
            expected = plain_rows(family, model, texts, pool, subword)
            for side in ("left", "right"):
                model.tokenizer.padding_side = side
                got = ls.extract(model, task, pool=pool, subword=subword, store=False, batch_tokens=48)
                for layer in got.layers:
                    torch.testing.assert_close(got[layer], expected[layer], rtol=1e-4, atol=1e-5)


class Nobody:
    def update(self, batch): ...


@pytest.mark.parametrize("family", ["gpt2", "bert"])
@pytest.mark.parametrize("pool", POOLS)
def test_no_value_is_read_from_the_device_while_batches_run(family, pool, task, monkeypatch):
    """One reading for each window, when the batches of the next one have been started, and none before."""
    model = random_model(family)
    monkeypatch.setattr(Loop, "on_cpu", False)  # where nothing is ever under way elsewhere
    monkeypatch.setattr(Loop, "_sizes", lambda self: repeat(4))
    seen = []
    check = Streamer._check_finite

    def read(self, window, batches, finite):
        seen.append("read")
        with torch.utils._python_dispatch._disable_current_modes():
            check(self, window, batches, finite)

    class Notes:
        def update(self, batch):
            seen.append("batch")

    monkeypatch.setattr(Streamer, "_check_finite", read)
    with NoWaiting():
        tally = ls.stream(model, task.split(), Notes(), pool=pool, batch_tokens=48)
    assert tally.rows >= 7
    assert seen[-2:] == ["read", "read"]  # two windows, of several batches
    assert seen[:-2] == ["batch"] * (len(seen) - 2)
    assert len(seen) > 4


@pytest.mark.parametrize(("on_cpu", "alive"), [(True, 2), (False, 4)])
def test_few_windows_are_in_memory_at_a_time(on_cpu, alive, task, monkeypatch):
    """The one that is run and one that waits; where a device must not wait, one more of each."""
    monkeypatch.setattr(Loop, "on_cpu", on_cpu)
    monkeypatch.setattr(Loop, "_sizes", lambda self: repeat(1))
    windows, most = [], []
    encoded = Loop._encoded

    def watched(self, examples):
        window = encoded(self, examples)
        windows.append(weakref.ref(window))
        return window

    class Notes:
        def update(self, batch):
            time.sleep(0.01)  # for the windows that wait
            most.append(sum(window() is not None for window in windows))

    monkeypatch.setattr(Loop, "_encoded", watched)
    texts = list(task.split().texts)
    assert ls.stream(random_model("bert"), iter(texts * 3), Notes()).rows == 3 * len(texts)
    assert max(most) <= alive


def test_every_text_goes_through_the_model_once(task, monkeypatch):
    model = random_model("bert")
    seen = []
    original = model.network.forward

    @functools.wraps(original)
    def counted(input_ids, attention_mask, **kwargs):
        seen.append(attention_mask.sum(dim=1).tolist())
        return original(input_ids=input_ids, attention_mask=attention_mask, **kwargs)

    monkeypatch.setattr(model.network, "forward", counted)
    ls.stream(model, task.split(), Nobody(), Nobody(), pool="mean", batch_tokens=10**6)
    assert len(seen) == 1  # seven texts, one batch, two consumers
    assert sorted(seen[0]) == sorted(len(ids) for ids in model.tokenizer(list(task.split().texts))["input_ids"])


@pytest.mark.parametrize("row", [0, 3, 6])
def test_what_is_not_finite_is_named_by_layer_and_row_whatever_the_batch(row, task):
    """The check comes once for a window, and still finds the one text whose state is broken in one layer."""
    model = random_model("bert")
    wanted = model.tokenizer(task.split().texts[row])["input_ids"]
    current, updates = [], []

    def spoil(module, args, output):
        state = output[0] if isinstance(output, tuple) else output
        for text, ids in enumerate(current[-1]):
            if ids[: len(wanted)].tolist() == wanted:
                state[text, 1, 2] = float("nan")

    model.network.register_forward_pre_hook(lambda _, __, given: current.append(given["input_ids"]), with_kwargs=True)
    model.network.encoder.layer[2].register_forward_hook(spoil)
    listener = type("Listener", (), {"update": lambda _, batch: updates.append(len(batch.rows))})()
    with pytest.raises(DataError, match=rf"^Layer 3 of .* is not finite for row {row + 1} of "):
        ls.stream(model, task.split(), listener, pool="mean", batch_tokens=40)
    assert sum(updates) == 7


def test_sums_that_overflow_are_no_fault(task):
    """Finite states whose sum is too large for a float are looked at again, and let through."""
    model = random_model("bert")
    model.network.encoder.layer[1].register_forward_hook(
        lambda _, __, output: (
            (torch.full_like(output[0], 3e37), *output[1:])
            if isinstance(output, tuple)
            else torch.full_like(output, 3e37)
        )
    )
    tally = ls.stream(model, task.split(), Nobody(), layers=[2], pool="cls")
    assert tally.rows == 7


@pytest.mark.parametrize("where", ["network", "consumer", "tokenizer"])
def test_the_network_is_as_it_was_after_an_error(where, task, monkeypatch):
    model = random_model("gpt2")
    model.network.train()
    before = model.network.config.use_cache
    calls = []

    class Broken:
        def update(self, batch):
            if where == "consumer":
                raise RuntimeError("boom")

    if where == "network":
        model.network.ln_f.register_forward_hook(lambda *_: calls.append(1))
        last = model.network.h[-1]
        monkeypatch.setattr(last, "forward", lambda *_, **__: (_ for _ in ()).throw(RuntimeError("boom")))
    if where == "tokenizer":
        monkeypatch.setattr(loop, "WINDOW", 3)
        original = loop.encode

        def encode(model, examples, reading):
            if examples.rows[0] > 0:
                raise RuntimeError("boom")
            return original(model, examples, reading)

        streamer = Streamer([model], None, Reading())
        streamer.loop.encoder = encode
        with pytest.raises(RuntimeError, match="boom"):
            streamer.feed(task.split(), [Broken()], "t")
    else:
        with pytest.raises(RuntimeError, match="boom"):
            ls.stream(model, task.split(), Broken())
    assert model.network.training
    assert all(module.training for module in model.network.modules())
    assert model.network.config.use_cache == before
    assert not any(m._forward_pre_hooks or m._forward_hooks for m in model.network.h.modules())
    assert not torch.is_inference_mode_enabled()


def test_the_network_is_prepared_once_for_a_pass(task, monkeypatch):
    model = random_model("bert")
    model.network.train()
    monkeypatch.setattr(loop, "WINDOW", 2)
    switched = []
    train = type(model.network).train

    def counted(self, mode=True):
        if self is model.network:
            switched.append(mode)
        return train(self, mode)

    monkeypatch.setattr(type(model.network), "train", counted)
    ls.stream(model, task.split(), Nobody(), batch_tokens=30)
    assert switched == [False, True]


def test_texts_may_come_from_a_generator(task, monkeypatch):
    model = random_model("bert")
    monkeypatch.setattr(loop, "WINDOW", 2)
    texts, asked = list(task.split().texts), []

    class Rows:
        def __init__(self):
            self.rows, self.states = [], []

        def update(self, batch):
            self.rows.append(batch.rows.row)
            self.states.append(batch.states[0][4])

    def lines():
        for text in texts:
            asked.append(text)
            yield text

    kept = Rows()
    tally = ls.stream(model, lines(), kept, pool="mean")
    assert tally.rows == len(asked) == 7
    order = torch.from_numpy(np.argsort(np.concatenate(kept.rows)))
    torch.testing.assert_close(
        torch.cat(kept.states)[order], ls.extract(model, task, pool="mean", store=False)[4], rtol=1e-4, atol=1e-5
    )
    with pytest.raises(InputError, match="examples is 'a text'; it must be an Examples or a list of texts"):
        ls.stream(model, "a text", kept)
    with pytest.raises(InputError, match="Text 2 of the stream is a int"):
        ls.stream(model, iter(["a text", 3]), kept)
