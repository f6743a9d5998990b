"""What a model and a tokenizer are: what changes an answer changes the fingerprint, and nothing else does."""

import pytest
import torch
from tokenizers import AddedToken, normalizers
from transformers import AutoTokenizer, BertweetTokenizer, ByT5Tokenizer, CanineTokenizer

import layerscope as ls
from layerscope.models import load
from layerscope.models.fingerprint import fingerprint, tokenizer_fingerprint, tokenizer_identity
from layerscope.store import NoKey, Store
from tests.helpers.data import extraction_key, labelled_task
from tests.helpers.models import random_network, two_block_encoder, word_tokenizer


def split_special_tokens(tokenizer):
    tokenizer.split_special_tokens = True


def cls_token(tokenizer):
    tokenizer.cls_token = "[MASK]"


def truncation_side(tokenizer):
    tokenizer.truncation_side = "left"


def add_prefix_space(tokenizer):
    tokenizer.add_prefix_space = not tokenizer.add_prefix_space


def lower_case(tokenizer):
    tokenizer.backend_tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)


def added_token(tokenizer):
    tokenizer.add_tokens(["ofthe"])


def input_names(tokenizer):
    tokenizer.model_input_names = ["input_ids", "attention_mask"]


@pytest.mark.parametrize(
    "edit",
    [split_special_tokens, cls_token, truncation_side, add_prefix_space, lower_case, added_token, input_names],
)
def test_every_flag_of_a_fast_tokenizer_is_part_of_it(edit):
    tokenizer = word_tokenizer()
    before, opened = tokenizer_fingerprint(tokenizer), two_block_encoder(tokenizer=tokenizer)
    key_before = extraction_key(opened)
    edit(tokenizer)
    assert tokenizer_fingerprint(tokenizer) != before
    assert extraction_key(opened) != key_before


def test_what_does_not_change_ids_is_no_part_of_a_tokenizer():
    one, other = word_tokenizer(), word_tokenizer()
    other.padding_side, other.model_max_length, other.name_or_path = "left", 7, "elsewhere"
    other.chat_template, other.verbose = "{{ messages }}", False
    other(["a file", "this is the list of an object"], padding=True, truncation=True, max_length=4)
    assert tokenizer_fingerprint(one) == tokenizer_fingerprint(other)


@pytest.mark.parametrize("family", ["bert", "xlnet", "gpt2"])
def test_a_saved_tokenizer_is_the_same(family, tmp_path):
    tokenizer = word_tokenizer(family)
    tokenizer.save_pretrained(tmp_path)
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer_fingerprint(again) == tokenizer_fingerprint(tokenizer)


@pytest.fixture
def bertweet(tmp_path):
    """Makes slow tokenizers from small files."""
    words = ["f@@", "i@@", "l@@", "e", "a", "file", "il@@", "@USER"]
    (tmp_path / "vocab.txt").write_text("".join(f"{word} 1\n" for word in words))
    (tmp_path / "merges.txt").write_text("i l 3\nil e</w> 2\nf ile</w> 2\n")
    return lambda **options: BertweetTokenizer(str(tmp_path / "vocab.txt"), str(tmp_path / "merges.txt"), **options)


def test_the_flags_of_a_slow_tokenizer_are_part_of_it(bertweet):
    plain, normal = bertweet(), bertweet(normalization=True)
    text = "a file @somebody"
    assert plain(text)["input_ids"] != normal(text)["input_ids"]
    assert tokenizer_fingerprint(plain) == tokenizer_fingerprint(bertweet())  # whatever it has read
    assert len({tokenizer_fingerprint(t) for t in (plain, normal)}) == 2
    assert extraction_key(two_block_encoder(tokenizer=plain)) != extraction_key(two_block_encoder(tokenizer=normal))


def test_the_files_of_a_slow_tokenizer_are_read_and_not_named(bertweet, tmp_path):
    before = tokenizer_fingerprint(bertweet())
    (tmp_path / "merges.txt").write_text("i l 3\n")
    assert tokenizer_fingerprint(bertweet()) != before


def test_a_slow_tokenizer_is_its_class_its_added_tokens_and_their_flags():
    plain, some = ByT5Tokenizer(), [ByT5Tokenizer() for _ in range(3)]
    some[0].add_tokens(["ofthe"])
    some[1].add_tokens([AddedToken("ofthe", lstrip=True)])
    some[2].cls_token = "f"
    before = tokenizer_fingerprint(plain)
    plain("of the ofthe file")
    plain.padding_side = "left"
    assert tokenizer_fingerprint(plain) == before == tokenizer_fingerprint(ByT5Tokenizer())
    assert len({before, *map(tokenizer_fingerprint, [*some, CanineTokenizer()])}) == 5


class Loud(ByT5Tokenizer):
    """A tokenizer whose code is nowhere but here."""

    def _tokenize(self, text):
        return super()._tokenize(text.upper())


def test_a_tokenizer_of_ones_own_has_no_fingerprint_and_is_only_itself():
    one, other = Loud(), Loud()
    with pytest.raises(NoKey, match=r"Loud in the tokenizer"):
        tokenizer_fingerprint(one)
    assert tokenizer_identity(one) == tokenizer_identity(one) != tokenizer_identity(other)


@pytest.mark.parametrize("pool", ["cls", "tokens"])
def test_a_tokenizer_without_a_fingerprint_works_without_the_store(pool):
    tokenizer = word_tokenizer()
    opened = two_block_encoder(tokenizer=tokenizer)
    expected = ls.extract(opened, labelled_task(), pool=pool, store=False)[2]
    tokenizer.own = lambda text: text
    reps = ls.extract(opened, labelled_task(), pool=pool)
    assert torch.equal(reps[2], expected)
    assert ls.compare(opened, opened, task=labelled_task(), pool=pool).values.shape == (3, 3)
    assert not Store().entries()


def test_weights_edited_in_place_make_another_model():
    model = load(random_network("bert"), tokenizer=word_tokenizer())
    before = fingerprint(model)
    assert fingerprint(model) == before
    with torch.no_grad():
        next(model.network.parameters())[0, 0] += 1e-3
    assert fingerprint(model) != before


def test_the_tokenizers_fingerprint_sees_what_decides_the_ids():
    one, other = word_tokenizer(), word_tokenizer()
    before = tokenizer_fingerprint(one)
    one("the file is long", truncation=True, max_length=4)
    assert tokenizer_fingerprint(one) == before == tokenizer_fingerprint(other)
    other.truncation_side = "left"
    assert tokenizer_fingerprint(other) != before
