"""Training rows: an entry per text, padded as the network takes them, choices that are not real said to be so."""

import inspect

import pandas
import pytest
import torch

import layerscope as ls
from layerscope.tuning.frozen_cache import CHOICES, INDEX, STATES, PrefixStates
from layerscope.tuning.trainer import Collate, TextRows
from tests.helpers.data import three_class_frame
from tests.helpers.models import random_model


def collate(opened, regression=False):
    return Collate(opened, regression, set(inspect.signature(opened.network.forward).parameters))


def test_a_batch_is_as_long_as_its_longest_text(task):
    opened = random_model(kind="classifier")
    data = TextRows(opened, task.split("train"), 32)
    assert len(data) == 48
    batch = collate(opened)([data[k] for k in (3, 0, 7)])
    lengths = batch["attention_mask"].sum(dim=1)
    assert batch["input_ids"].shape == (3, int(lengths.max()))
    assert batch["labels"].tolist() == task.split("train").labels[[3, 0, 7]].tolist()
    assert batch["labels"].dtype == torch.int64
    for k, (place, length) in enumerate(zip((3, 0, 7), lengths, strict=True)):
        assert batch["input_ids"][k, :length].tolist() == data.items[place].ids.tolist()


@pytest.mark.parametrize(("family", "left"), [("bert", False), ("xlnet", True)])
def test_padding_is_where_the_head_does_not_read(family, left, task):
    opened = random_model(family, "classifier")
    data = TextRows(opened, task.split("train"), 32)
    batch = collate(opened)([data[k] for k in range(8)])
    ends = batch["attention_mask"][:, 0 if left else -1]
    assert 0 < int(ends.sum()) < 8


def test_numbers_are_floats():
    frame = three_class_frame(6, 0)
    numbers = ls.task(frame.assign(label=frame["label"] + 0.5))
    opened = random_model(kind="classifier", labels=1)
    data = TextRows(opened, numbers.split(), 32)
    assert collate(opened, regression=True)([data[0]])["labels"].dtype == torch.float32


def test_choices_that_are_not_real_are_said():
    frame = pandas.DataFrame({"text": ["the file", "a list"], "options": [["of", "in", "and"], ["to", "a"]]})
    data = ls.task(frame.assign(label=[2, 0]), text="text", choices="options", label="label")
    opened = random_model(kind="choice")
    items = TextRows(opened, data.split(), 32)
    batch = collate(opened)([items[0], items[1]])
    assert batch["input_ids"].shape[:2] == (2, 3)
    assert batch[CHOICES].tolist() == [[True, True, True], [True, True, False]]
    assert batch["input_ids"][1, 2].tolist() == batch["input_ids"][1, 0].tolist()  # the first one in its place
    assert CHOICES not in collate(opened)([items[0]])


def test_cached_states_come_along_or_their_places_do(task):
    opened = random_model(kind="classifier")
    examples = task.split("train")
    cache = PrefixStates(opened, examples, 2, 32, "float32").open()
    entries = [TextRows(opened, examples, 32, cache)[k] for k in (3, 0)]
    states = collate(opened)(entries)[STATES]
    assert states.shape[::2] == (2, 32)
    far = TextRows(opened, examples, 32, cache, first_row=100)
    index = collate(opened)([far[k] for k in (3, 0)])[INDEX]
    table = torch.cat([torch.zeros(100, 32), cache.table(torch.device("cpu"))])
    mask = collate(opened)(entries)["attention_mask"].bool()
    torch.testing.assert_close(table[index][mask], states[mask])
