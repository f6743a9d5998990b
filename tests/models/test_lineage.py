"""A network knows which rows it learned from, and is not scored on them unless that is asked for."""

import base64
import json
import logging
import shutil
import zlib

import numpy as np
import pandas
import pytest
import zoo

import layerscope as ls
from layerscope.errors import InputError, ModelError
from layerscope.models.lineage import learn, learned, packed, unpacked

WORDS = ["file", "list", "value", "return", "object", "string", "and", "the", "of", "in", "this", "that", "not"]
FEW = {"max_steps": 2, "max_length": 16}


def table(n=60, seed=0):
    generator = np.random.default_rng(seed)
    texts = [" ".join(generator.choice(WORDS, size=generator.integers(2, 9))) for _ in range(n)]
    return pandas.DataFrame({"text": texts, "label": [["no", "yes", "so"][i % 3] for i in range(n)]})


def encoder():
    return ls.load(zoo.network("bert", "encoder"), tokenizer=zoo.tokenizer())


@pytest.mark.parametrize("rows", [[], [0], [3, 4, 900], range(0, 5000, 7), range(100_000)])
def test_rows_come_back_from_their_text(rows):
    rows = np.asarray(list(rows), dtype=np.int64)
    assert unpacked(packed(rows)).tolist() == rows.tolist()
    assert len(packed(rows)) < 1000


@pytest.mark.parametrize("method", ["finetune", "lora", "adapter", "prefix"])
def test_a_tuned_model_is_scored_on_the_rows_that_were_held_out(method, tmp_path, caplog):
    data = table()
    training = ls.tune(encoder(), data, method=method, **FEW)
    network = training.model
    (entry,) = learned(network)
    assert entry["n"] == 48
    if method == "prefix":
        return  # peft's module cannot be evaluated as a network
    with caplog.at_level(logging.WARNING, "layerscope"):
        score = ls.evaluate(network, data, max_length=16)
    assert score.n == 12
    assert score == pytest.approx(training.score)
    assert "learned from 48 of the 60 rows of table (all): 12 of the others are scored" in caplog.text
    assert "did not learn" in score.note
    assert ls.evaluate(network, data, all_rows=True).n == 60
    assert "learned from 48 of these 60" in ls.evaluate(network, data, all_rows=True).note
    assert ls.evaluate(network, data, limit=5).n == 5
    assert ls.evaluate(network, table(seed=1)).n == 60
    relabelled = data.assign(label=data["label"].str.upper())
    assert ls.evaluate(ls.load(network), relabelled).n == 12


def test_copies_and_cuts_remember(tmp_path):
    data = table(120)
    training = ls.tune(encoder(), data, out=tmp_path / "tuned", **FEW)
    shutil.copytree(tmp_path / "tuned" / "checkpoint", tmp_path / "copy")
    assert ls.evaluate(tmp_path / "copy", data).n == 24
    assert ls.skip_map(str(tmp_path / "tuned"), data, max_span=1).frame["n"].tolist()[0] == 24
    smaller = ls.truncate(str(tmp_path / "tuned"), 2)
    assert ls.evaluate(smaller, data).n == 24
    saved = ls.save(smaller, tmp_path / "smaller")
    assert ls.evaluate(saved, data).n == 24
    assert json.loads((saved / "layerscope.json").read_text())["learned"][0]["n"] == 96
    assert ls.advise(str(tmp_path / "copy"), data, max_span=1, evaluations=0).exam.examples.texts_fingerprint
    assert len(ls.advise(str(tmp_path / "copy"), data, max_span=1, evaluations=0).exam.examples) == 24
    again = ls.tune(smaller, data, **FEW)
    assert again.job.lesson.validation.rows.tolist() == training.job.lesson.validation.rows.tolist()
    study = ls.injection_study(str(tmp_path / "copy"), training.model, data, methods=["identity"])
    assert study.frame["n"].tolist() == [24] * 3
    everything = {"methods": ["identity"], "all_rows": True}
    assert ls.injection_study(str(tmp_path / "copy"), training.model, data, **everything).frame["n"][0] == 60


def test_a_split_of_its_own_changes_nothing_and_what_was_learned_whole_is_refused(tmp_path):
    parts = {"train": table(), "validation": table(30, seed=1)}
    training = ls.tune(encoder(), parts, **FEW)
    assert ls.evaluate(training.model, parts).n == 30
    score = ls.evaluate(training.model, parts, split="train")
    assert score.n == 60
    assert "learned from 60 of these 60 rows" in score.note
    with pytest.raises(InputError, match=r"learned from all 60 rows of table \(all\).*--all-rows"):
        ls.evaluate(training.model, parts["train"])
    assert ls.evaluate(training.model, parts["train"], all_rows=True).n == 60


def test_what_a_model_learned_from_is_no_part_of_what_it_is():
    model = ls.load(zoo.network("bert"), tokenizer=zoo.tokenizer())
    before = model.spec()
    learn(model.network, ls.task(table()).split())
    assert model.spec() == before


GOOD = {"task": "t", "split": "train", "texts": "ab", "n": 1, "rows": packed(np.asarray([3]))}
STEP = {"from": "m", "depth": 4, "keep": [1, 2], "head": 2, "weights": "x"}


@pytest.mark.parametrize(
    "content",
    [
        *("{", "[]", "3", "[" * 100_000, '{"steps": 3}', '{"learned": [3]}', '{"learned": [{}]}'),
        *(json.dumps({"learned": [{**GOOD, name: value}]}) for name in GOOD for value in (None, [], {}, 1.5)),
        *(json.dumps({"learned": [{**GOOD, "rows": rows}]}) for rows in ("", "é", "abc", "AAAA", "=" * 9)),
        *(
            json.dumps({"steps": [{**STEP, name: value}]})
            for name in STEP
            for value in ([None], {})
            if name != "weights"
        ),
    ],
)
def test_a_damaged_account_is_a_sentence(content, tmp_path):
    zoo.save(tmp_path, "bert")
    (tmp_path / "layerscope.json").write_text(content)
    with pytest.raises(ModelError, match=r"layerscope.json is (not JSON|damaged) .*remove the file"):
        ls.load(tmp_path)


def test_an_account_that_is_whole_is_kept(tmp_path):
    zoo.save(tmp_path, "bert")
    (tmp_path / "layerscope.json").write_text(json.dumps({"steps": [STEP], "learned": [GOOD], "other": 1}))
    network = ls.load(tmp_path).network
    assert learned(network) == [GOOD]
    assert network._layerscope_origin == [STEP]


def test_a_list_of_rows_that_would_fill_the_memory_is_a_sentence():
    bomb = base64.b64encode(zlib.compress(bytes(70 << 20), 9)).decode()
    with pytest.raises(ValueError, match="more than 536,870,912 rows"):
        unpacked(bomb)
