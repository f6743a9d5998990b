"""One vocabulary, the same whenever it is trained."""

import pretrain
from nursery import vocabulary
from transformers import AutoTokenizer


def test_two_trainings_give_the_same_vocabulary(shard):
    texts = shard.read_text(encoding="utf-8").splitlines()
    first, second = (vocabulary.train(texts, 160).get_vocab() for _ in range(2))
    assert first == second
    assert 60 < len(first) <= 160


def test_special_tokens_come_first_and_characters_are_ordinary_tokens(shard):
    tokenizer = vocabulary.train(shard.read_text(encoding="utf-8").splitlines(), 160)
    assert [tokenizer.token_to_id(token) for token in vocabulary.SPECIAL] == [0, 1, 2, 3, 4]
    assert tokenizer.encode("otter and heron", add_special_tokens=False).tokens.count("[UNK]") == 0
    assert {token.content for token in tokenizer.get_added_tokens_decoder().values()} == set(vocabulary.SPECIAL)


def test_the_alphabet_is_the_most_frequent_characters_ties_by_code_point():
    assert vocabulary.alphabet(["ÀbbB", "a c", "dd"], 3) == ["b", "a", "d"]


def test_the_saved_folder_is_a_standard_tokenizer(tokenizer_folder):
    tokenizer = AutoTokenizer.from_pretrained(tokenizer_folder)
    found = tokenizer("The otter", "the HERON")
    assert set(found) == {"input_ids", "attention_mask"}
    tokens = tokenizer.convert_ids_to_tokens(found["input_ids"])
    assert tokens[0] == "[CLS]"
    assert tokens.count("[SEP]") == 2
    assert tokens[-1] == "[SEP]"
    assert tokenizer.decode(found["input_ids"], skip_special_tokens=True) == "the otter the heron"


def test_texts_for_a_summary_at_the_end_are_padded_on_the_left(shard):
    tokenizer = vocabulary.finished(vocabulary.train(shard.read_text(encoding="utf-8").splitlines(), 160), True)
    short, long = tokenizer(["otter", "the otter sleeps by the river"], padding=True)["input_ids"]
    assert short[-2:] == long[-2:] == [vocabulary.SEP_ID, vocabulary.CLS_ID]
    assert short[0] == vocabulary.PAD_ID


def test_held_out_articles_have_no_say_in_the_vocabulary(tmp_path, monkeypatch):
    from nursery import corpus

    (tmp_path / "a.txt").write_text("otter otter\n\nzzz zzz\n\nheron heron\n", encoding="utf-8")
    monkeypatch.setattr(corpus, "is_held_out", lambda article: article == ["zzz zzz"])
    pretrain.main(["vocabulary", str(tmp_path / "a.txt"), "--size", "40", "--every", "1", "--out", str(tmp_path / "t")])
    assert "z" not in AutoTokenizer.from_pretrained(tmp_path / "t").get_vocab()
