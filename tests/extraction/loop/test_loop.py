"""The one loop: windows, and what all models of it share."""

import functools
from dataclasses import replace

import numpy as np
import pandas
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError
from layerscope.evaluation.evaluate import make_evaluator
from layerscope.extraction import loop
from layerscope.extraction.items import Item, Items
from layerscope.extraction.loop import Loop, common_rows, in_parts, parts_of, stream_in_parts
from layerscope.extraction.pooling import Reading
from tests.helpers.models import random_model, random_network, word_tokenizer


def test_out_of_memory_halves_the_batch_and_goes_on(task, monkeypatch, caplog):
    model = random_model("bert")
    expected = ls.extract(model, task, store=False)
    sizes = []
    original = model.network.forward

    @functools.wraps(original)
    def scarce(input_ids, **kwargs):
        sizes.append(input_ids.numel())
        if input_ids.numel() > 90:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(input_ids=input_ids, **kwargs)

    monkeypatch.setattr(model.network, "forward", scarce)
    reps = ls.extract(model, task, store=False)
    assert max(sizes) > 90
    assert "going on with" in caplog.text
    for layer in reps.layers:
        torch.testing.assert_close(reps[layer], expected[layer], rtol=1e-4, atol=1e-5)

    monkeypatch.setattr(model.network, "forward", lambda **_: (_ for _ in ()).throw(torch.OutOfMemoryError("no")))
    with pytest.raises(InputError, match=r"single text of .* tokens does not fit"):
        ls.extract(model, task, store=False)


def test_other_runtime_errors_are_not_taken_for_memory(task, monkeypatch):
    model = random_model("bert")
    monkeypatch.setattr(
        model.network.embeddings, "forward", lambda *a, **k: (_ for _ in ()).throw(RuntimeError("boom"))
    )
    with pytest.raises(RuntimeError, match="boom"):
        ls.extract(model, task, store=False)


def test_windows_are_of_one_size_and_know_where_they_start(task, monkeypatch):
    monkeypatch.setattr(loop, "WINDOW", 3)
    examples = task.split()
    assert [len(part) for part in parts_of(examples)] == [3, 3, 1]
    one = Loop.over_tokens([random_model("bert")], Reading())
    windows = list(one.windows(parts_of(examples)))
    assert [window.start for window in windows] == [0, 3, 6]
    (items,) = one.items(examples)
    assert [len(item) for item in items] == [len(item) for window in windows for item in window.items[0]]
    seen = [window.start + place for window, places, _ in one.over(examples, lambda *_: None, "t") for place in places]
    assert sorted(seen) == list(range(7))


def test_where_a_model_sees_padding_a_batch_has_one_length(task):
    usual = random_model("bert")
    strict = replace(usual, architecture=replace(usual.architecture, unpadded=True))
    lengths = {}
    for models in ([usual], [strict], [usual, strict]):
        texts = Loop.over_tokens(models, Reading("mean"), tokens=64)
        (window,) = texts.windows([task.split()])
        items = window.items[0]
        lengths[len(models), models[0].architecture.unpadded] = [
            [len(items[i]) for i in places] for places, _ in texts.through(window, lambda _, places: places)
        ]
    assert any(len(set(batch)) > 1 for batch in lengths[1, False])
    for batches in (lengths[1, True], lengths[2, False]):
        assert all(len(set(batch)) == 1 for batch in batches)
        assert any(len(batch) > 1 for batch in batches)
        assert [batch[0] for batch in batches] == sorted((batch[0] for batch in batches), reverse=True)
        assert sorted(n for batch in batches for n in batch) == sorted(map(len, items))
    kinds = np.arange(len(items)) % 3  # those of kind 0 are left out
    for places, _ in texts.through(window, lambda _, places: places, lambda _: (kinds + 1, kinds)):
        assert len({(int(kinds[i]), len(items[i])) for i in places}) == 1
        assert kinds[places].all()


def with_long_rope():
    """Texts of more than 16 tokens are read with other frequencies than short ones."""
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "short_factor": [1.0] * 4, "long_factor": [3.0] * 4}
    network = random_network("phi3", "next", original_max_position_embeddings=16, rope_parameters=rope)
    return ls.load(network, tokenizer=word_tokenizer("phi3"))


def test_a_long_text_does_not_change_the_short_ones_that_are_read_with_it(task):
    model = with_long_rope()
    texts = task.split().texts
    lengths = [len(model.tokenizer(text)["input_ids"]) for text in texts]
    assert model.long_above == 16
    assert min(lengths) < 16 < max(lengths)
    rows = ls.extract(model, task, pool="last", final_norm=True, store=False)[model.depth]
    with torch.inference_mode():
        batches = [model.tokenizer(text, return_tensors="pt") for text in texts]
        alone = [model.network.model(**batch).last_hidden_state[0, -1] for batch in batches]
    torch.testing.assert_close(rows, torch.stack(alone), rtol=1e-4, atol=1e-5)


def test_choices_go_with_others_that_are_as_long():
    model = with_long_rope()
    table = {"text": ["the file", "a list " * 12, "return"], "endings": [["value", "string"]] * 3, "label": [0, 1, 0]}
    answers = [
        make_evaluator(model, ls.task(pandas.DataFrame(table), choices="endings"), batch_tokens=n) for n in (1, 1000)
    ]
    np.testing.assert_allclose(*(evaluator.logits() for evaluator in answers), rtol=1e-4)


def test_tokens_of_two_tokenizers_are_no_common_rows(task):
    cased = word_tokenizer()
    cased.truncation_side = "left"
    models = [random_model("bert"), ls.load(random_network("bert", "encoder"), tokenizer=cased)]
    with pytest.raises(InputError, match="needs models with one and the same tokenizer"):
        Loop.over_tokens(models, Reading("tokens")).items(task.split())
    assert len(Loop.over_tokens(models, Reading("mean")).items(task.split())) == 2


def test_windows_grow_where_batches_are_large_and_end_where_texts_are_long(task, monkeypatch):
    model = random_model("bert")
    texts = Loop.over_tokens([model], Reading())
    sizes = texts._sizes()
    assert [next(sizes) for _ in range(3)] == [loop.WINDOW] * 3
    monkeypatch.setattr(type(model), "device", torch.device("meta"))  # any that is no CPU
    sizes = texts._sizes()
    assert [next(sizes) for _ in range(5)] == [1536, 7680, 38400, 65536, 65536]
    texts.largest = 2000
    sizes = texts._sizes()
    assert [next(sizes) for _ in range(3)] == [1536, 2000, 2000]
    examples = task.split()
    monkeypatch.setattr(loop, "_CHARACTERS", 40)
    monkeypatch.setattr(loop, "_CHARACTERS_PER_TEXT", 8)
    lengths = [len(text) for text in examples.texts]
    whole = next(in_parts(examples, iter([sum(lengths)])))  # where many texts are wanted there may be more characters
    assert len(whole) == len(examples)
    monkeypatch.setattr(loop, "_CHARACTERS_PER_TEXT", 0)
    parts = list(in_parts(examples, iter([2, 3, 4, 4, 4, 4])))
    assert [text for part in parts for text in part.texts] == list(examples.texts)
    assert [row for part in parts for row in part.rows] == list(examples.rows)
    assert all(len(part) == 1 or sum(map(len, part.texts)) <= 40 for part in parts)
    assert any(len(part) > 1 for part in parts)
    streamed = list(stream_in_parts(iter(examples.texts), iter([2, 3, 4, 4, 4, 4, 4])))
    assert [len(part) for part in streamed] == [len(part) for part in parts]
    assert [row for part in streamed for row in part.rows] == list(range(7))
    assert len({part.fingerprint for part in streamed}) == 1
    again = next(stream_in_parts(iter(examples.texts), iter([2])))
    assert again.fingerprint != streamed[0].fingerprint  # no two streams are taken for the same data
    assert list(stream_in_parts([], iter([2]))) == []


def test_rows_that_all_models_have():
    def words(*units):
        rest = np.zeros(0, np.int64)
        return Items.from_list(
            [Item(np.arange(9), None, np.asarray(u) % 9, np.arange(len(u)), np.asarray(u), False, rest) for u in units]
        )

    a, b = common_rows([words([0, 1, 4], [2], [3, 5]), words([1, 4, 7], [0], [3, 5])])
    assert [item.unit.tolist() for item in a] == [item.unit.tolist() for item in b] == [[1, 4], [], [3, 5]]
    assert a.take.tolist() == [1, 4, 3, 5]
