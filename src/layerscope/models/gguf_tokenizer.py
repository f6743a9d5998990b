"""The tokenizer in a GGUF file, tried on words of the file's own vocabulary before it is trusted."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from layerscope.errors import LayerscopeError, ModelError, first_line, log
from layerscope.models.gguf_header import Header

_TOKENS = "tokenizer.ggml.tokens"
_SPACES = ("Ġ", "▁")  # what stands for a space in front of a token
_LOOKED_AT, _SAMPLED, _FEWEST_WORDS = 20_000, 200, 20  # tokens and words that a tokenizer is tried on
_READ = 0.5  # of them that it must give as the single tokens that they are


def open_tokenizer(file: Path, header: Header, name: str) -> Any:
    """The tokenizer in a file, or None where it has none that can be opened."""
    import transformers
    from transformers import AutoTokenizer

    if not header.lists.get(_TOKENS):
        return None
    try:
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name, local_files_only=True)
        _follow_bos(tokenizer, header)
        words = _words(file)
        if len(words) >= _FEWEST_WORDS and share_read(tokenizer, words) < _READ:
            raise ModelError(
                f"transformers {transformers.__version__} reads the tokenizer in {name} wrongly: of {len(words)} words "
                f"that are single tokens there, it gives {share_read(tokenizer, words):.0%} as that token; another "
                "version may read it (pip install -U transformers), or give the checkpoint that it was made from."
            )
        return tokenizer
    except BaseException as error:  # the tokenizers library panics on some broken vocabularies, outside of Exception
        if isinstance(error, (KeyboardInterrupt, SystemExit, LayerscopeError)):
            raise
        log.warning("The tokenizer in %s cannot be opened (%s); the model has none.", name, first_line(error))
        return None


def _words(path: Path) -> dict[str, int]:
    """Some words of plain letters that are single tokens of the file's own vocabulary, evenly from all of it."""
    import gguf

    field = gguf.GGUFReader(path).fields[_TOKENS]
    whole = len(field.data)
    words: dict[str, int] = {}
    for index in range(0, whole, max(whole // _LOOKED_AT, 1)):
        token = bytes(field.parts[field.data[index]]).decode("utf-8", "replace")
        if token[:1] in _SPACES and len(token) > 3 and token[1:].isascii() and token[1:].isalpha():
            words[token[1:]] = index
    step = max(len(words) // _SAMPLED, 1)
    return dict(list(words.items())[::step])


def share_read(tokenizer: Any, words: Mapping[str, int]) -> float:
    """Of words that are single tokens the share that a tokenizer gives as that token, with a space in front or not."""
    right = 0
    for word, index in words.items():
        ids = [list(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in (f" {word}", word)]
        right += [index] in ids
    return right / len(words)


def _follow_bos(tokenizer: Any, header: Header) -> None:
    """Let the tokenizer put the first token before a text where the file says so, and not where it says not."""
    from tokenizers import processors

    asked, first = header.metadata.get("tokenizer.ggml.add_bos_token"), tokenizer.bos_token_id
    if not isinstance(asked, bool) or first is None or not getattr(tokenizer, "is_fast", False):
        return
    ids = tokenizer("a")["input_ids"]
    if (len(ids) > 0 and ids[0] == first) is asked:
        return
    if hasattr(tokenizer, "add_bos_token"):
        tokenizer.add_bos_token = asked
    bos = tokenizer.bos_token
    template = processors.TemplateProcessing(f"{bos} $A", f"{bos} $A {bos} $B:1", [(bos, first)])
    tokenizer.backend_tokenizer.post_processor = template if asked else processors.ByteLevel(trim_offsets=False)
