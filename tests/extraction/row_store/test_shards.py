"""Files of representations: what is damaged is a sentence."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import layerscope as ls
from layerscope.errors import DataError
from layerscope.extraction.row_store import read_shards, write_card, write_shard


@pytest.mark.parametrize("damage", ["card", "format", "shard", "none"])
def test_damage_is_a_sentence(damage, reps, tmp_path):
    path = reps.save(tmp_path / "reps")
    card = path / "representations.json"
    if damage == "card":
        card.write_text("{")
    elif damage == "format":
        card.write_text(json.dumps({**json.loads(card.read_text()), "format": 99}))
    elif damage == "shard":
        (path / "shard-00000.safetensors").write_bytes(b"xx")
    else:
        card.unlink()
    with pytest.raises(DataError, match=r"damaged|not JSON|format 99|holds no"):
        ls.Representations.load(path)


@pytest.fixture
def own(tmp_path):
    """Representations of three layers in a folder, with labels."""
    draw = np.random.default_rng(0).normal
    made = ls.Representations.from_arrays([draw(size=(6, 3)) for _ in range(3)], labels=["a", "b"] * 3)
    return made.save(tmp_path / "own")


@pytest.mark.parametrize(
    "field", ["format", "shards", "layers", "names", "label_names", "task", "split", "fingerprint", "units", "info"]
)
def test_a_field_of_another_type_is_a_sentence(field, own):
    text = (own / "representations.json").read_text()
    values = (3, "x", {"a": 1}, [{}], [[1]], [3.5], ["../x.safetensors"], [-1], [10**30], ["\ud800"], True)
    sentences = []
    for value in values:
        (own / "representations.json").write_text(json.dumps({**json.loads(text), field: value}))
        try:
            assert len(ls.Representations.load(own)[0]) == 6
        except DataError as error:  # anything else is a traceback
            sentences.append(str(error))
    assert len(sentences) >= len(values) - 1  # a field may have the type of one of them
    assert all(str(own) in sentence and "\n" not in sentence for sentence in sentences)


@pytest.mark.parametrize("part", ["described", "data", "reading"])
def test_what_is_said_of_the_rows_is_an_object(part, own):
    card = json.loads((own / "representations.json").read_text())
    (own / "representations.json").write_text(json.dumps({**card, "info": {part: "x"}}))
    with pytest.raises(DataError, match=f"{part} is not an object"):
        ls.Representations.load(own)


@pytest.mark.parametrize("name", ["../outside.safetensors", "/tmp/outside.safetensors", "link.safetensors", ""])
def test_only_files_of_the_folder_are_read(name, own):
    (own / "shard-00000.safetensors").rename(own.parent / "outside.safetensors")
    (own / "link.safetensors").symlink_to(own.parent / "outside.safetensors")
    card = json.loads((own / "representations.json").read_text())
    (own / "representations.json").write_text(json.dumps({**card, "shards": [name]}))
    with pytest.raises(DataError, match="only files of a folder are read"):
        ls.Representations.load(own)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda t: t.pop("layer.1"), "holds no layer.1"),
        (lambda t: t.pop("row"), "holds no row"),
        (lambda t: t.update({"layer.1": torch.zeros(5, 3)}), "layer.1 has shape"),
        (lambda t: t.update({"layer.1": torch.zeros(6)}), "layer.1 has shape"),
        (lambda t: t.update({"layer.1": torch.zeros(6, 3, dtype=torch.int64)}), "layer 1 holds I64"),
        (lambda t: t.update({"row": torch.zeros(6)}), "row holds F32"),
        (lambda t: t.update({"label": torch.full((6,), 7)}), "whole numbers from 0 to 1"),
        (lambda t: t["layer.2"].__setitem__((4, 1), torch.nan), "layer 2, row 4 holds a value that is not a finite"),
        (lambda t: t["layer.0"].__setitem__((0, 0), torch.inf), "layer 0, row 0 holds a value that is not a finite"),
    ],
)
def test_tensors_that_are_not_the_representations_are_a_sentence(change, reason, own):
    tensors = load_file(own / "shard-00000.safetensors")
    change(tensors)
    save_file(tensors, own / "shard-00000.safetensors")
    with pytest.raises(DataError, match=reason):
        ls.Representations.load(own)


def test_rows_of_several_shards_are_read_as_one(tmp_path):
    draw = np.random.default_rng(0).normal
    whole = ls.Representations.from_arrays([draw(size=(7, 3)), draw(size=(7, 2))], labels=[0, 1, 1, 0, 1, 0, 0])
    names = []
    for part in (slice(0, 3), slice(3, 7)):
        some = whole.select(rows=part)
        names.append(f"shard-{part.start}.safetensors")
        write_shard(tmp_path / names[-1], {layer: some[layer] for layer in some.layers}, some.rows, some.labels)
    write_card(tmp_path, names, whole._card())
    parts = read_shards(tmp_path, finite=True)
    assert torch.equal(parts["states"][1], whole[1])
    assert torch.equal(parts["states"].part(0, 2, 5), whole[0][2:5])
    assert parts["rows"].row.tolist() == list(range(7))
    assert np.array_equal(parts["labels"], whole.labels)
