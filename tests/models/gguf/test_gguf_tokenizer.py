"""Tokenizers in GGUF files."""

import pandas
import pytest

import layerscope as ls
from layerscope.errors import ModelError
from layerscope.models.gguf import share_read
from tests.helpers.checkpoints import gguf_tokens, write_gguf


def test_a_file_without_a_tokenizer_opens_without_one(tmp_path):
    path = write_gguf(tmp_path / "bare.gguf", tokenizer=False, llama__vocab_size=len(gguf_tokens()))
    assert ls.load(path).tokenizer is None


@pytest.mark.parametrize("asked", [True, False])
def test_the_tokenizer_begins_texts_as_the_file_says(asked, tmp_path):
    path = write_gguf(tmp_path / "tiny.gguf", tokenizer__ggml__add_bos_token=asked)
    tokenizer = ls.load(path).tokenizer
    ids = tokenizer("file list")["input_ids"]
    assert (ids[0] == tokenizer.bos_token_id) is asked
    assert tokenizer("file list", add_special_tokens=False)["input_ids"] == ids[asked:]
    score = ls.evaluate(path, ls.task(pandas.DataFrame({"text": ["file and list"]}), kind="text"))
    assert score.metrics["tokens"] == 5 - (not asked)  # after a first token every token of the text is scored


def test_a_tokenizer_that_does_not_know_the_words_of_the_file_is_refused(tmp_path):
    words = [f"Ġ{a}{b}word" for a in "abcdef" for b in "abcdef"]  # no merges lead to them
    with pytest.raises(ModelError, match=r"reads the tokenizer in .* wrongly: of 36 words .* gives 0% as that token"):
        ls.load(write_gguf(tmp_path / "tiny.gguf", words=words))


def test_words_are_read_with_a_space_in_front_or_without():
    ids = {" one": [1], "one": [7, 8], " two": [9, 9], "two": [2], " three": [4, 5], "three": [6]}
    words = {"one": 1, "two": 2, "three": 3}
    assert share_read(lambda text, **_: {"input_ids": ids[text]}, words) == pytest.approx(2 / 3)
