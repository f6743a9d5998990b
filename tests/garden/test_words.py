"""Words numbered once: the stream leads back to the text, and each word has its characters and its first piece."""

import re

import numpy as np
import pytest
from nursery import corpus
from nursery.words import number_words
from transformers import AutoTokenizer

from layerscope.models.elmo_opening import RUNNING_WORD


@pytest.mark.parametrize("workers", [1, 2])
def test_the_stream_is_the_words_of_the_articles(shard, tokenizer_folder, tmp_path, workers):
    folder = number_words([shard], tokenizer_folder, tmp_path, 12, workers)
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    plain = {part: [] for part in corpus.PARTS}
    for article in corpus.articles([shard]):
        words = [w for p in article for w in re.findall(RUNNING_WORD, p)]  # as texts are split when they are read
        plain[corpus.PARTS[corpus.is_held_out(article)]] += words
    characters, first = (np.load(folder / f"{name}.npy") for name in ("characters", "first"))
    for part, words in plain.items():
        stream = np.load(folder / f"{part}.npy")
        assert len(stream) == len(words)
        spelled = [bytes(c - 1 for c in row if c <= 256).decode() for row in characters[stream].tolist()]
        assert spelled == [word[:10] for word in words]
    for word in ("otter", "The"):
        number = next(int(n) for n, w in zip(np.load(folder / "train.npy"), plain["train"], strict=True) if w == word)
        assert first[number] == tokenizer(word, add_special_tokens=False)["input_ids"][0]
    assert corpus.Corpus(folder).meta["train"]["tokens"] == len(plain["train"])
    assert len(characters) == len({*plain["train"], *plain["held"]})


def test_the_cache_is_used_and_its_key_knows_the_length(shard, tokenizer_folder, tmp_path, monkeypatch):
    folder = number_words([shard], tokenizer_folder, tmp_path, 12, 1)
    assert number_words([shard], tokenizer_folder, tmp_path, 14, 1) != folder
    monkeypatch.setattr("nursery.words.articles", None)
    assert number_words([shard], tokenizer_folder, tmp_path, 12, 1) == folder
