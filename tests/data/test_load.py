"""What `ls.task` opens, and as which kind."""

import pandas
import pytest

import layerscope as ls
from layerscope.errors import DataError, InputError, LayerscopeError


def test_any_texts_can_be_read_as_running_text(tmp_path):
    frame = pandas.DataFrame({"text": ["a b", "c d"], "label": ["x", "y"]})
    task = ls.task(frame, kind="text", bos=True, stride=4)
    assert (task.kind, task.metric, task.label_names) == ("text", "perplexity", None)
    assert task.split().labels is None
    assert task.spec()["asking"] == {"bos": True, "stride": 4}
    labelled = ls.task(frame)
    assert labelled.kind == "single"
    assert labelled.as_text().kind == "text"
    assert labelled.split().labels is not None
    assert ls.task("pydocs").running
    assert ls.task("pydocs", kind="text").kind == "text"
    with pytest.raises(LayerscopeError, match="kind of task"):
        ls.task(frame, kind="poem")
    with pytest.raises(InputError, match="belong to the call that made it"):
        ls.task(task, bos=True)


def test_tags_are_one_per_word():
    words = [["a", "dog"], ["runs"]]
    task = ls.task(pandas.DataFrame({"words": words, "pos": [["DET", "NOUN"], ["VERB"]]}), tags="pos")
    assert (task.kind, task.label_names, task.metric) == ("tags", ("DET", "NOUN", "VERB"), "accuracy")
    assert [tags.tolist() for tags in task.split().tags] == [[0, 1], [2]]
    assert task.split().take([1]).tags[0].tolist() == [2]
    broken = ls.task(pandas.DataFrame({"words": words, "pos": [["DET"], ["VERB"]]}), tags="pos")
    with pytest.raises(DataError, match="1 tags for 2 words"):
        broken.split()
    assert (
        len(ls.task(pandas.DataFrame({"words": words, "pos": [["DET"], ["VERB"]]}), tags="pos", skip_bad=True).split())
        == 1
    )


def test_a_treebank_has_parts_of_speech(tmp_path):
    path = tmp_path / "a.conllu"
    rows = [("1", "A", "DET", "DT"), ("2-3", "dont", "_", "_"), ("2", "do", "AUX", "VB"), ("3", "nt", "PART", "RB")]
    path.write_text("".join("\t".join([n, w, "_", u, x, *["_"] * 5]) + "\n" for n, w, u, x in rows) + "\n")
    task = ls.task(path, tags="upos")
    assert list(task.split().words[0]) == ["A", "do", "nt"]
    assert [task.label_names[tag] for tag in task.split().tags[0]] == ["DET", "AUX", "PART"]


def test_a_prompt_is_known_apart_from_the_choices(tmp_path, monkeypatch):
    monkeypatch.setenv("LAYERSCOPE_DATA", str(tmp_path))
    (tmp_path / "cosmosqa").mkdir()
    columns = {"context": ["a b"], "question": ["q"], "endings": [["w", "x", "y", "z"]], "label": [3]}
    pandas.DataFrame(columns).to_parquet(tmp_path / "cosmosqa" / "validation.parquet")
    examples = ls.task("cosmosqa").split()
    assert (list(examples.prompts), list(examples.choices[0])) == (["q"], ["q w", "q x", "q y", "q z"])
