"""One lower-cased WordPiece vocabulary for every family, the same whenever it is trained on the same text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

PAD, UNK, CLS, SEP, MASK = SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")  # ids 0..4
PAD_ID, UNK_ID, CLS_ID, SEP_ID, MASK_ID = range(5)
_PREFIX = "##"


def alphabet(texts: Iterable[str], size: int) -> list[str]:
    """The `size` most frequent characters after normalising; ties by code point."""
    raw: Counter[str] = Counter()
    for text in texts:
        raw.update(text)
    normalizer, counts = _normalizer(), Counter[str]()
    for character, count in raw.items():
        for piece in normalizer.normalize_str(character).strip():
            counts[piece] += count
    ordered = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return [character for character, _ in ordered[:size]]


def train(texts: list[str], size: int, characters: int = 400) -> Any:
    """A `tokenizers.Tokenizer` of at most `size` pieces over `characters` characters.

    The trainer numbers characters in the order of a hash map, and breaks ties by number: two runs on one text differ.
    So every character goes in as a token of its own, first and in a fixed order; only five of them stay special.
    """
    from tokenizers import Tokenizer, models, trainers

    letters = alphabet(texts, characters)
    first = [*SPECIAL, *letters, *(_PREFIX + letter for letter in letters)]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        special_tokens=first,
        initial_alphabet=letters,
        limit_alphabet=len(letters),
        show_progress=False,
    )
    learner = Tokenizer(models.WordPiece(unk_token=UNK))
    _prepare(learner)
    learner.train_from_iterator(texts, trainer)
    found = Tokenizer(models.WordPiece(vocab=learner.get_vocab(), unk_token=UNK, max_input_chars_per_word=100))
    _prepare(found)
    found.add_special_tokens(list(SPECIAL))
    return found


def save(tokenizer: Any, folder: Path) -> None:
    """A standard tokenizer folder: `[CLS] text [SEP]`, padding on the right."""
    finished(tokenizer).save_pretrained(folder)


def finished(tokenizer: Any, summary_last: bool = False, positions: int = 128) -> Any:
    """The transformers tokenizer. With `summary_last` texts end in `[SEP] [CLS]` and padding is on the left (XLNet)."""
    from tokenizers import Tokenizer, decoders, processors
    from transformers import PreTrainedTokenizerFast

    own = Tokenizer.from_str(tokenizer.to_str())
    single, pair = (
        ("$A [SEP] [CLS]", "$A [SEP] $B:1 [SEP]:1 [CLS]")
        if summary_last
        else (
            "[CLS] $A [SEP]",
            "[CLS] $A [SEP] $B:1 [SEP]:1",
        )
    )
    own.post_processor = processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(CLS, CLS_ID), (SEP, SEP_ID)]
    )
    own.decoder = decoders.WordPiece(prefix=_PREFIX)
    return PreTrainedTokenizerFast(
        tokenizer_object=own,
        pad_token=PAD,
        unk_token=UNK,
        cls_token=CLS,
        sep_token=SEP,
        mask_token=MASK,
        padding_side="left" if summary_last else "right",
        # No token types: they were never trained, RoBERTa has one only, and GPT-2 would add a word's embedding.
        model_input_names=["input_ids", "attention_mask"],
        model_max_length=positions,
    )


def _normalizer() -> Any:
    from tokenizers import normalizers

    return normalizers.BertNormalizer(lowercase=True)


def _prepare(tokenizer: Any) -> None:
    from tokenizers import pre_tokenizers

    tokenizer.normalizer = _normalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
