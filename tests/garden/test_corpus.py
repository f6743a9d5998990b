"""Tokenised once, whole, in order; held-out articles stay out."""

import lzma

import numpy as np
import pytest
from nursery import corpus
from nursery.vocabulary import SEP_ID
from transformers import AutoTokenizer


def plain_streams(shard, tokenizer_folder):
    """The two token streams by the plainest means."""
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    streams = {part: [] for part in corpus.PARTS}
    for block in shard.read_text(encoding="utf-8").strip().split("\n\n"):
        paragraphs = block.split("\n")
        ids = [i for p in paragraphs for i in tokenizer(p, add_special_tokens=False)["input_ids"]]
        streams[corpus.PARTS[corpus.is_held_out(paragraphs)]] += [*ids, SEP_ID]
    return streams


@pytest.mark.parametrize("workers", [1, 2])
def test_the_streams_are_the_articles_one_after_another(shard, tokenizer_folder, tmp_path, workers):
    found = corpus.Corpus(corpus.tokenise([shard], tokenizer_folder, tmp_path, workers))
    expected = plain_streams(shard, tokenizer_folder)
    for part in corpus.PARTS:
        assert found.tokens(part).tolist() == expected[part]
        assert found.tokens(part).dtype == np.uint16
        assert (found.tokens(part)[found.ends(part) - 1] == SEP_ID).all()
        assert found.meta[part] == {"tokens": len(expected[part]), "articles": expected[part].count(SEP_ID)}
    assert len(expected["held"]) > 0


def test_what_is_cached_is_not_made_again(shard, tokenizer_folder, tmp_path, monkeypatch):
    first = corpus.tokenise([shard], tokenizer_folder, tmp_path, 1)
    monkeypatch.setattr(corpus, "ProcessPoolExecutor", None)  # would fail if it were used
    assert corpus.tokenise([shard], tokenizer_folder, tmp_path, 1) == first


def test_another_text_is_another_cache(shard, tokenizer_folder, tmp_path):
    other = tmp_path / "other.txt"
    other.write_text(shard.read_text(encoding="utf-8") + "\nOne more article.\n", encoding="utf-8")
    made = {corpus.tokenise([path], tokenizer_folder, tmp_path / "cache", 1) for path in (shard, other)}
    assert len(made) == 2


def test_no_article_is_both_trained_on_and_held_out(shard):
    everything = list(corpus.articles([shard]))
    held = {tuple(article) for article in everything if corpus.is_held_out(article)}
    rest = {tuple(article) for article in everything if not corpus.is_held_out(article)}
    assert held
    assert not held & rest
    assert len(held) + len(rest) == len({tuple(article) for article in everything})


def test_compressed_shards_and_stray_empty_lines_are_read_alike(tmp_path):
    text = "\n\none\ntwo\n\n\n\nthree\n"
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    with lzma.open(tmp_path / "a.txt.xz", "wt", encoding="utf-8") as file:
        file.write(text)
    expected = [["one", "two"], ["three"]]
    assert list(corpus.articles([tmp_path / "a.txt"])) == list(corpus.articles([tmp_path / "a.txt.xz"])) == expected
