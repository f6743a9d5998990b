import numpy as np
import pandas
import pytest
import torch

import layerscope as ls
from layerscope.errors import DataError, InputError
from layerscope.store import Store
from tests.helpers.models import random_network, word_tokenizer


def equal(a, b):
    return (
        a.layers == b.layers
        and all(torch.equal(a[layer], b[layer]) for layer in a.layers)
        and a.rows.difference(b.rows) is None
        and np.array_equal(a.labels, b.labels)
        and a.label_names == b.label_names
        and a.info == b.info
    )


def test_save_and_load(reps, tmp_path):
    path = reps.save(tmp_path / "a" / "reps")
    assert equal(ls.Representations.load(path), reps)
    reps.save(path)  # again, over itself
    assert {p.name for p in path.iterdir()} == {"representations.json", "shard-00000.safetensors"}


def test_loaded_layers_are_memory_mapped_and_safe_to_change(reps, tmp_path):
    path = reps.save(tmp_path / "reps")
    loaded = ls.Representations.load(path)
    loaded[2].zero_()
    assert equal(ls.Representations.load(path), reps)


@pytest.mark.parametrize("missing", [None, np.nan, pandas.NA])
def test_a_missing_label_is_no_class(missing):
    with pytest.raises(InputError, match="some are missing"):
        ls.Representations.from_arrays([np.ones((3, 2))], labels=pandas.Series(["a", missing, "b"]))
    with pytest.raises(InputError, match="some are missing"):
        ls.Representations.from_arrays([np.ones((3, 2))], labels=np.array(["a", missing, "b"], dtype=object))


def test_selecting_layers_and_rows(reps):
    part = reps.select(layers=[1, 3], rows=slice(2, 5))
    assert part.layers == reps.select(layers=np.array([1, 3])).layers == [1, 3]
    assert torch.equal(part[3], reps[3][2:5])
    assert part.rows.row.tolist() == [2, 3, 4]
    assert part.labels.tolist() == reps.labels[2:5].tolist()
    mask = reps.labels == 0
    assert torch.equal(reps.select(rows=mask)[2], reps[2][torch.from_numpy(mask)])
    assert torch.equal(reps.select(rows=[4, 0])[2], reps[2][[4, 0]])
    with pytest.raises(InputError, match=r"no layer 7 here; there are 0\.\.4"):
        reps.select(layers=[7])
    with pytest.raises(InputError, match="no layer 'x'"):
        reps["x"]


def test_labels_can_be_given(reps):
    assert reps.with_labels(list("xyxyxyx")).label_names == ("x", "y")
    assert reps.with_labels(np.linspace(0, 1, 7)).labels.dtype == np.float64
    with pytest.raises(InputError, match="7 labels are needed"):
        reps.with_labels([1, 2])
    with pytest.raises(InputError, match="not among the names"):
        reps.with_labels(list("xyxyxyx"), names=["x"])


def test_arrays_of_ones_own():
    x = np.arange(12.0).reshape(4, 3)
    reps = ls.Representations.from_arrays([x, torch.ones(4, 2)], labels=[0, 1, 0, 1], names=["in", "out"])
    assert reps[0].dtype == torch.float32
    assert reps[1].shape == (4, 2)
    assert reps.names == ("in", "out")
    assert len(reps) == 4
    mistakes = (
        ([], "at least one"),
        ([x, x[:2]], "same number"),
        ([x[0]], "two dimensions"),
        ([x[:, :0]], "at least one column"),
    )
    for wrong, sentence in mistakes:
        with pytest.raises(InputError, match=sentence):
            ls.Representations.from_arrays(wrong)
    with pytest.raises(InputError, match="1 names were given for 2"):
        ls.Representations.from_arrays([x, x], names=["a"])


def test_common_rows_need_the_same_data(reps, task):
    part = reps.select(rows=[1, 2, 5])
    other = reps.select(rows=[5, 2, 3])
    one, two = ls.Representations.common(part, other)
    assert one.rows.row.tolist() == two.rows.row.tolist() == [2, 5]
    assert torch.equal(one[3], two[3])
    with pytest.raises(InputError, match="different tasks"):
        ls.Representations.common(reps, ls.Representations.from_arrays([np.eye(3)]))


def test_the_store_keeps_and_finds_representations(task, monkeypatch):
    model = ls.load(random_network("bert", "encoder"), tokenizer=word_tokenizer())
    first = ls.extract(model, task, pool="mean")
    assert equal(first, ls.extract(model, task, pool="mean", store=False))
    monkeypatch.setattr(type(model.network), "forward", lambda *_, **__: pytest.fail("the model ran again"))
    assert equal(ls.extract(model, task, pool="mean", batch_tokens=50), first)
    assert len(Store().entries()) == 1


def test_whatever_determines_the_result_makes_another_artifact(task):
    model = ls.load(random_network("bert", "encoder"), tokenizer=word_tokenizer())
    ls.extract(model, task)
    for options in ({"pool": "mean"}, {"layers": [1]}, {"limit": 3}, {"max_length": 20}, {"final_norm": True}):
        ls.extract(model, task, **options)
    assert len(Store().entries()) == 6
    with torch.no_grad():
        model.network.encoder.layer[0].output.dense.weight[0, 0] += 0.1
    ls.extract(model, task)
    assert len(Store().entries()) == 7


def test_a_damaged_artifact_is_made_again(task, caplog):
    model = ls.load(random_network("bert", "encoder"), tokenizer=word_tokenizer())
    first = ls.extract(model, task, store=False)
    ls.extract(model, task)
    shard = next(Store().entries()[0].path.glob("*.safetensors"))
    data = bytearray(shard.read_bytes())
    data[-5] ^= 1
    shard.write_bytes(data)
    assert equal(ls.extract(model, task), first)
    assert "damaged" in caplog.text


def test_iterating_is_not_by_rows(reps):
    with pytest.raises(TypeError, match="by layer"):
        list(reps)


def test_odd_selections(reps, tmp_path):
    assert reps.select(rows=slice(None, None, -1)).rows.row.tolist() == [6, 5, 4, 3, 2, 1, 0]
    assert len(reps.select(rows=3)) == 1
    with pytest.raises(InputError, match="No layer was selected"):
        reps.select(layers=[])
    x = np.ones((3, 2), dtype=np.float32)
    twice = ls.Representations.from_arrays([torch.from_numpy(x)] * 2)
    x[:] = 5
    assert float(twice[0].max()) == 1
    assert torch.equal(ls.Representations.load(twice.save(tmp_path / "twice"))[1], twice[1])
    with pytest.raises(InputError, match="whole numbers from 0 to 1"):
        reps.with_labels([0, 1, 7, 0, 0, 0, 0], names=["a", "b"])
    with pytest.raises(InputError, match="some are missing"):
        reps.with_labels(["a", None, "b", "a", "a", "a", "a"])


def test_text_without_tokens_is_refused_in_a_corpus_too(tmp_path):
    path = tmp_path / "z.txt"
    path.write_text("a fine line\n\u200b\nanother line\n")
    model = ls.load(random_network("bert", "encoder"), tokenizer=word_tokenizer())
    with pytest.raises(DataError, match=r"in line 2 of z \(all\)"):
        ls.extract(model, path, pool="mean", store=False)


def test_another_side_of_truncation_is_another_artifact(task):
    left = word_tokenizer()
    left.truncation_side = "left"
    net = random_network("bert", "encoder")
    one, two = (ls.extract(net, task, tokenizer=t, max_length=6) for t in (word_tokenizer(), left))
    assert not torch.equal(one[4], two[4])


def test_what_is_not_finite_is_not_saved(tmp_path):
    array = np.zeros((5, 2))
    array[3, 1] = np.nan
    with pytest.raises(InputError, match="Layer 1 has a NaN in row 3"):
        ls.Representations.from_arrays([np.zeros((5, 2)), array]).save(tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
