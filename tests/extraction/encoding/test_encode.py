"""Word alignment, for tokenizers of every kind."""

import numpy as np
import pandas
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

import layerscope as ls
from layerscope.errors import InputError
from layerscope.extraction import encoding
from layerscope.extraction.encoding import encode
from layerscope.extraction.pooling import Reading
from tests.helpers.models import CONFIGS, VOCABULARY, random_network, word_tokenizer

TEXT = ["the cat did n't sit on the mat .", 'naïve café 東京 said : "un-do it"', "oh"]


@pytest.fixture
def corpus(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(TEXT) + "\n")
    return ls.task(path)


def trained(pre_tokenizer, **options):
    backend = Tokenizer(models.BPE(unk_token=None, **options))
    backend.pre_tokenizer = pre_tokenizer
    alphabet = pre_tokenizers.ByteLevel.alphabet() if not options else []
    backend.train_from_iterator(
        TEXT * 3, trainers.BpeTrainer(vocab_size=330, initial_alphabet=alphabet, show_progress=False)
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend)


def byte_level(trim):
    tokenizer = trained(pre_tokenizers.ByteLevel(add_prefix_space=False, trim_offsets=trim))
    tokenizer.backend_tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


TOKENIZERS = {
    "wordpiece": lambda: word_tokenizer("bert"),
    "xlnet": lambda: word_tokenizer("xlnet"),
    "byte-level": lambda: byte_level(True),
    "byte-level, offsets with the space": lambda: byte_level(False),
    "metaspace first": lambda: trained(pre_tokenizers.Metaspace(prepend_scheme="first"), fuse_unk=False),
    "metaspace always": lambda: trained(pre_tokenizers.Metaspace(prepend_scheme="always"), fuse_unk=False),
}


def model_with(tokenizer):
    net = random_network("bert", "encoder", vocab_size=max(len(VOCABULARY), 400), type_vocab_size=3)
    return ls.load(net, tokenizer=tokenizer)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_every_word_is_its_own_characters(kind, corpus):
    """The tokens of a word, put together, spell the word: checked through the characters that each covers."""
    model = model_with(TOKENIZERS[kind]())
    examples = corpus.split()
    every = encode(model, examples, Reading(pool="words", subword="mean"))
    for item, words in zip(every, examples.words, strict=True):
        assert item.unit.tolist() == list(range(len(words)))
        text = " ".join(words)
        offsets = model.tokenizer(text, return_offsets_mapping=True)["offset_mapping"]
        for word in range(len(words)):
            spans = [offsets[t] for t in item.take[item.segment == word]]
            covered = text[min(s for s, _ in spans) : max(e for _, e in spans)]
            assert covered.strip() == words[word]


@pytest.mark.parametrize("pool", ["mean", "tokens", "last", "words"])
def test_a_few_texts_at_a_time_give_the_same_items(pool, corpus, monkeypatch):
    model, reading = model_with(word_tokenizer("bert")), Reading(pool=pool, max_length=9)
    whole = encode(model, corpus.split(), reading)
    monkeypatch.setattr(encoding, "_AT_ONCE", 2)
    parts = encode(model, corpus.split(), reading)
    assert len(parts) == 3
    for name, values in vars(whole).items():
        np.testing.assert_array_equal(getattr(parts, name), values, err_msg=name)


@pytest.mark.parametrize("kind", TOKENIZERS)
def test_last_and_first_subwords_are_the_ends_of_the_mean(kind, corpus):
    model = model_with(TOKENIZERS[kind]())
    last, first, mean = (
        encode(model, corpus.split(), Reading(pool="words", subword=s)) for s in ("last", "first", "mean")
    )
    for a, b, every in zip(last, first, mean, strict=True):
        for word in range(len(every.unit)):
            tokens = every.take[every.segment == word]
            assert a.take[word] == tokens.max()
            assert b.take[word] == tokens.min()


def test_word_rows_are_the_states_of_their_subwords(corpus):
    model = model_with(word_tokenizer())
    tokens = ls.extract(model, corpus, pool="tokens", store=False)
    for subword in ("last", "first", "mean"):
        words = ls.extract(model, corpus, pool="words", subword=subword, store=False)
        items = encode(model, corpus.split(), Reading(pool="words", subword=subword))
        for text, item in enumerate(items):
            of_text = tokens[3][torch.from_numpy(tokens.rows.row == text)]
            place = dict(zip(tokens.rows.unit[tokens.rows.row == text].tolist(), of_text, strict=True))
            for word in range(len(item.unit)):
                want = torch.stack([place[t] for t in item.take[item.segment == word].tolist()]).mean(0)
                row = np.flatnonzero((words.rows.row == text) & (words.rows.unit == word))[0]
                torch.testing.assert_close(words[3][row], want, rtol=1e-4, atol=1e-5)


def test_words_cut_off_are_left_out_whole_and_counted(corpus, caplog):
    model = model_with(word_tokenizer())
    reps = ls.extract(model, corpus, pool="words", max_length=9, store=False)
    total = sum(len(text.split()) for text in TEXT)
    assert reps.info["words_left_out"] == total - len(reps) > 0
    assert "words are left out" in caplog.text
    full = ls.extract(model, corpus, pool="words", store=False)
    kept = full.rows.frame()["word"].groupby(full.rows.row).max()
    cut = reps.rows.frame()["word"].groupby(reps.rows.row).max()
    assert (cut < kept)[:2].all()
    # "the" + "c","##a","##t" + "d",...: seven tokens hold "the" and "cat" whole and a part of "did", which is left out
    assert reps.rows.unit[reps.rows.row == 0].tolist() == [0, 1, 2]


def test_words_are_left_out_in_every_model_alike(corpus):
    models_ = [model_with(word_tokenizer()), model_with(byte_level(True))]
    alone = [ls.extract(m, corpus, pool="words", max_length=12, store=False) for m in models_]
    assert alone[0].rows.difference(alone[1].rows) is not None
    rows = []

    class Listener:
        def update(self, batch):
            assert len(batch.states[0][4]) == len(batch.states[1][4]) == len(batch.rows)
            rows.extend(zip(batch.rows.row.tolist(), batch.rows.unit.tolist(), strict=True))

    tally = ls.stream(models_, corpus.split(), Listener(), pool="words", max_length=12)
    both = [set(zip(r.rows.row.tolist(), r.rows.unit.tolist(), strict=True)) for r in alone]
    assert set(rows) == both[0] & both[1]
    assert tally.words_left_out == sum(len(t.split()) for t in TEXT) - len(rows)
    common = ls.Representations.common(*alone)
    assert common[0].rows.difference(common[1].rows) is None
    assert len(common[0]) == len(rows)


def test_tokens_of_different_tokenizers_are_not_compared(corpus):
    models_ = [model_with(word_tokenizer()), model_with(byte_level(True))]
    with pytest.raises(InputError, match="one and the same tokenizer"):
        ls.stream(models_, corpus.split(), pool="tokens")
    one, two = (ls.extract(m, corpus, pool="tokens", store=False) for m in models_)
    assert "units" in one.rows.difference(two.rows)


def test_words_that_were_split_in_different_ways_are_not_compared():
    frame = pandas.DataFrame({"text": ["well-known things", "a half-open file"]})
    tasks = ls.task(frame, text="text"), ls.task(frame, text="text", words_by=r"\w+|[^\w\s]")
    spaces, expression = (ls.extract(model_with(word_tokenizer()), each, pool="words", store=False) for each in tasks)
    assert expression.rows.units == r"word by \w+|[^\w\s]"
    assert "word" in expression.rows.frame()
    with pytest.raises(InputError, match="they are of different units: word and word by"):
        ls.Representations.common(spaces, expression)
    with pytest.raises(InputError, match="they are of different units"):
        ls.compare(spaces, expression)


def test_pydocs_is_a_corpus_of_words():
    reps = ls.extract(model_with(word_tokenizer()), "pydocs", pool="words", limit=5, store=False)
    assert reps.rows.units == "word"
    assert len(reps) > 25


def test_token_types_that_a_model_does_not_tell_apart_are_left_out():
    """RoBERTa has one type; a tokenizer that gives two must not reach outside its table."""
    frame = pandas.DataFrame({"text": ["the file", "a list of value"], "pair": ["this", "that is not"]})
    model = ls.load(random_network("roberta", "encoder", type_vocab_size=1), tokenizer=word_tokenizer())
    reps = ls.extract(model, ls.task(frame, text_pair="pair"), store=False)
    batch = model.tokenizer("the file", "this", return_tensors="pt", return_token_type_ids=False)
    with torch.inference_mode():
        expected = model.network(**batch).last_hidden_state[0, 0]
    torch.testing.assert_close(reps[4][0], expected, rtol=1e-4, atol=1e-5)


def test_a_token_type_without_an_embedding_is_a_sentence():
    model = ls.load(random_network("bert", "encoder"), tokenizer=word_tokenizer("xlnet"))
    with pytest.raises(InputError, match=r"token type 2 for row 1 .* knows 2 types"):
        ls.extract(model, pandas.DataFrame({"text": ["the file"]}), store=False)


def test_a_tokenizer_that_opens_and_cannot_read_is_a_sentence():
    tokenizer = word_tokenizer()
    tokenizer.truncation_side = 7
    model = ls.load(random_network("bert", "encoder"), tokenizer=tokenizer)
    with pytest.raises(InputError, match=r"tokenizer of .* cannot read texts"):
        ls.extract(model, pandas.DataFrame({"text": ["the file"]}), store=False)


def test_quantised_embeddings_are_counted():
    from transformers import AutoConfig, AutoModel

    sizes = {**CONFIGS["roberta"], "vocab_size": len(VOCABULARY), "pad_token_id": 0}
    net = AutoModel.from_config(AutoConfig.for_model("ibert", **sizes)).eval()
    reps = ls.extract(ls.load(net, tokenizer=word_tokenizer()), pandas.DataFrame({"text": ["the file"]}), store=False)
    assert len(reps) == 1


def test_tokens_that_carry_the_space_after_a_word_are_part_of_the_word():
    from layerscope.extraction.encoding import _words_at

    starts = np.asarray([0, 3, 9, 12])  # "ab cdefg hi", and "j" as another text after it
    spans = np.asarray([(0, 3), (3, 6), (6, 9), (9, 11), (2, 3), (5, 5), (0, 1), (0, 0)])
    text_starts = np.asarray([0] * 6 + [12] * 2)
    last = np.asarray([False, False, True, True])
    # "ab ", "cde", "fg ", "hi", " ", nothing; "j", nothing
    assert _words_at(spans, starts, text_starts, last).tolist() == [0, 1, 1, 2, -1, -1, 3, -1]


@pytest.mark.parametrize(("length", "cut"), [(5, False), (6, True), (20, True), (4, False)])
def test_a_slow_tokenizer_cuts_off_only_what_is_longer(length, cut):
    class Slow:
        """Spaces split words; it says nothing of what it cuts off."""

        is_fast = False

        def __call__(self, texts, pairs=None, truncation=False, max_length=None, **options):
            from transformers import BatchEncoding

            if isinstance(texts, str):
                return {"input_ids": [7] * len(texts.split())}
            ids = [[7] * len(text.split()) for text in texts]
            ids = [row[:max_length] for row in ids]
            return BatchEncoding({"input_ids": ids, "special_tokens_mask": [[0] * len(row) for row in ids]})

    model = ls.load(random_network("bert", "encoder"), tokenizer=Slow())
    frame = pandas.DataFrame({"text": [" ".join(["file"] * length)]})
    assert encode(model, ls.task(frame).split(), Reading(max_length=5))[0].truncated == cut
