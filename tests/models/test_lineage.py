"""A network knows which rows it learned from, and is not scored on them unless that is asked for."""

import base64
import json
import logging
import shutil
import zlib

import numpy as np
import pandas
import pytest

import layerscope as ls
from layerscope.errors import InputError, ModelError
from layerscope.models.lineage import known_rows, learn, learned, packed, unpacked
from tests.helpers.models import random_network, save_random, word_tokenizer

WORDS = ["file", "list", "value", "return", "object", "string", "and", "the", "of", "in", "this", "that", "not"]
FEW = {"max_steps": 2, "max_length": 16}


def table(n=60, seed=0):
    generator = np.random.default_rng(seed)
    texts = [" ".join(generator.choice(WORDS, size=generator.integers(2, 9))) for _ in range(n)]
    return pandas.DataFrame({"text": texts, "label": [["no", "yes", "so"][i % 3] for i in range(n)]})


def encoder():
    return ls.load(random_network("bert", "encoder"), tokenizer=word_tokenizer())


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
    with caplog.at_level(logging.WARNING, "layerscope"):
        score = ls.evaluate(network, data, max_length=16)
    assert score.n == 12
    assert score == pytest.approx(training.score)
    assert "learned from 48 of the 60 rows of table (all), so only 12 others are scored" in caplog.text
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
    assert ls.advise(str(tmp_path / "copy"), data, max_span=1, evaluations=0).evaluator.examples.texts_fingerprint
    assert len(ls.advise(str(tmp_path / "copy"), data, max_span=1, evaluations=0).evaluator.examples) == 24
    again = ls.tune(smaller, data, **FEW)
    assert again.job.training_data.validation.rows.tolist() == training.job.training_data.validation.rows.tolist()
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


def test_rows_that_were_learned_from_are_known_in_other_files_and_splits(tmp_path, caplog):
    data = table(120).assign(text=[f"{text} {'file ' * (i % 7)}{i}" for i, text in enumerate(table(120)["text"])])
    training = ls.tune(encoder(), data, out=tmp_path / "tuned", **FEW)
    tuned = str(tmp_path / "tuned")
    more = pandas.concat([data, pandas.DataFrame({"text": ["one more"], "label": ["no"]})], ignore_index=True)
    with caplog.at_level(logging.WARNING, "layerscope"):
        assert ls.evaluate(tuned, more).n == 25
    assert "learned from 96 of the 121 rows of table (all), so only 25 others are scored" in caplog.text
    assert ls.evaluate(tuned, more, all_rows=True).n == 121
    held_out = set(training.job.training_data.validation.texts)
    few = data.sample(40, random_state=0)
    assert ls.evaluate(tuned, few).n == sum(text in held_out for text in few["text"])
    again = ls.tune(tuned, more, **FEW).job.training_data
    assert set(again.validation.texts) <= held_out | {"one more"}
    # A split of its own is scored as it is, and what it shares with the rows that were learned from is said.
    score = ls.evaluate(tuned, {"train": table(60, seed=3), "validation": few})
    assert score.n == 40
    assert "learned from" in score.note
    unknown = {"train": table(60, seed=3), "validation": data[data["text"].isin(held_out)].reset_index(drop=True)}
    assert ls.evaluate(tuned, unknown).note == ""


def test_marks_survive_their_text_and_joins(monkeypatch):
    from layerscope.models import lineage

    data = ls.task(table(50)).split()
    network = random_network("bert", "encoder")
    learn(network, data.take(slice(0, 20)))
    learn(network, data.take(slice(10, 40)))
    (entry,) = learned(network)
    assert entry["n"] == 40
    expected = np.unique(lineage.marks(data)[:40])
    assert lineage._decoded_marks(entry).tolist() == expected.tolist()
    assert lineage._decoded_marks({}).tolist() == []  # what earlier versions wrote
    monkeypatch.setattr(lineage, "_MOST", 7)
    assert lineage._decoded_marks({"marks": lineage._encoded_marks(expected)}).tolist() == expected[:7].tolist()


def test_a_mark_is_of_the_texts_alone_and_of_all_of_them():
    from layerscope.models.lineage import marks

    one = pandas.DataFrame({"text": ["a", "b"], "pair": ["b", "a"], "label": [0, 1]})
    pairs = marks(ls.task(one, text="text", text_pair="pair").split())
    assert len({*pairs.tolist(), *marks(ls.task(one[["text", "label"]]).split()).tolist()}) == 4
    assert marks(ls.task(one.assign(label=[1, 0]), text="text", text_pair="pair").split()).tolist() == pairs.tolist()


def test_what_a_model_learned_from_is_no_part_of_what_it_is():
    model = ls.load(random_network("bert"), tokenizer=word_tokenizer())
    before = model.spec()
    learn(model.network, ls.task(table()).split())
    assert model.spec() == before


GOOD = {"task": "t", "split": "train", "texts": "ab", "n": 1, "marks": "", "rows": packed(np.asarray([3]))}
STEP = {"from": "m", "depth": 4, "keep": [1, 2], "head": 2, "weights": "x"}


@pytest.mark.parametrize(
    "content",
    [
        *("{", "[]", "3", "[" * 100_000, '{"steps": 3}', '{"learned": [3]}', '{"learned": [{}]}'),
        *(json.dumps({"learned": [{**GOOD, name: value}]}) for name in GOOD for value in (None, [], {}, 1.5)),
        *(json.dumps({"learned": [{**GOOD, "rows": rows}]}) for rows in ("", "é", "abc", "AAAA", "=" * 9)),
        *(json.dumps({"learned": [{**GOOD, "marks": marks}]}) for marks in ("é", "abc", "AAAA", 3, None)),
        *(
            json.dumps({"steps": [{**STEP, name: value}]})
            for name in STEP
            for value in ([None], {})
            if name != "weights"
        ),
    ],
)
def test_a_damaged_account_is_a_sentence(content, tmp_path):
    save_random(tmp_path, "bert")
    (tmp_path / "layerscope.json").write_text(content)
    with pytest.raises(ModelError, match=r"layerscope.json is (not JSON|damaged) .*remove the file"):
        ls.load(tmp_path)


def test_an_account_that_is_whole_is_kept(tmp_path):
    save_random(tmp_path, "bert")
    (tmp_path / "layerscope.json").write_text(json.dumps({"steps": [STEP], "learned": [GOOD], "other": 1}))
    network = ls.load(tmp_path).network
    assert learned(network) == [GOOD]
    assert network._layerscope_origin == [STEP]


def test_a_list_of_rows_that_would_fill_the_memory_is_a_sentence():
    bomb = base64.b64encode(zlib.compress(bytes(70 << 20), 9)).decode()
    with pytest.raises(ValueError, match="more than 536,870,912 rows"):
        unpacked(bomb)


@pytest.mark.parametrize(
    "damage", [{"base": {"hub": True}}, {"scores": [{"metric": 3}]}, {"training": [{"task": "x"}]}]
)
def test_damaged_provenance_is_a_sentence(damage, tmp_path):
    folder = ls.save(ls.truncate(encoder(), 1), tmp_path / "small")
    record = json.loads((folder / "layerscope.json").read_text())
    (folder / "layerscope.json").write_text(json.dumps({**record, **damage}))
    with pytest.raises(ModelError, match=r"layerscope\.json is damaged"):
        ls.load(folder)


def test_rows_learned_from_the_beginning_of_a_split_are_known_in_the_whole_of_it():
    frame = pandas.DataFrame({"text": [f"text {k}" for k in range(1_500)] + ["text 3"]})
    model, task = encoder(), ls.task(frame)
    learn(model.network, task.split(limit=20))
    assert known_rows([model], task.split()).nonzero()[0].tolist() == list(range(20))  # the last one by its number
    assert known_rows([model], ls.task(frame[1:]).split()).nonzero()[0].tolist() == [*range(19), 1_499]
