"""How texts are read: the options of an extraction, as a value."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from layerscope.errors import InputError, choose, whole

POOLS = ("cls", "mean", "last", "words", "tokens")
SUBWORDS = ("last", "first", "mean")
AUTOCAST = ("bfloat16", "float16")


@dataclass(frozen=True)
class Reading:
    """Everything that decides which rows come out of a text, and their values."""

    pool: str = "cls"
    subword: str = "last"  # pool "words": which sub-words stand for a word
    special: bool = False  # pools "mean" and "tokens": keep separators and other special tokens
    max_length: int = 128
    final_norm: bool = False  # the last layer after the final norm, as Hugging Face's hidden_states[-1]
    autocast: str | None = None

    def __post_init__(self) -> None:
        choose("pool", self.pool, POOLS)
        choose("sub-word choice", self.subword, SUBWORDS)
        if self.autocast is not None:
            choose("autocast type", self.autocast, AUTOCAST)
        if self.special and self.pool not in ("mean", "tokens"):
            raise InputError(
                f"special=True is for the pools mean and tokens; the pool {self.pool!r} has no use for it."
            )
        if self.subword != "last" and self.pool != "words":
            raise InputError(
                f"subword={self.subword!r} is for the pool words; the pool {self.pool!r} has no use for it."
            )
        if not whole(self.max_length) or self.max_length < 3:
            raise InputError(f"max_length is {self.max_length}; a whole number of at least 3 tokens is needed.")

    def spec(self) -> dict[str, Any]:
        return asdict(self)
