"""How a task asks a network, where there is more than one way to: windows of running text, masks, embeddings."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from layerscope.errors import InputError, check_seed, choose

EMBEDDINGS = ("mean", "cls", "last")


@dataclass(frozen=True)
class Asking:
    """What a task says beside its rows.

    Attributes:
        bos: Running text: whether a window begins with the tokenizer's first token; as the tokenizer itself does, if
            not given.
        stride: Running text: how many tokens later the next window begins; only tokens that no window before has
            scored are scored in it. Windows do not overlap if not given.
        by_text: Running text: each text by itself, and not all of them joined.
        mask_seed: Masked language models: decides which tokens are masked.
        embedding: A bare encoder on scored pairs: the mean of all tokens, the first (`cls`) or the last.
    """

    bos: bool | None = None
    stride: int | None = None
    by_text: bool = False
    mask_seed: int = 0
    embedding: str | None = None

    def __post_init__(self) -> None:
        if self.stride is not None and (isinstance(self.stride, bool) or self.stride < 1):
            raise InputError(f"stride is {self.stride}; it must be a whole number of tokens of at least 1.")
        if self.embedding is not None:
            choose("embedding", self.embedding, EMBEDDINGS)
        check_seed(self.mask_seed)

    def given(self) -> dict[str, Any]:
        """What differs from the usual."""
        usual = Asking()
        return {name: value for name, value in asdict(self).items() if value != getattr(usual, name)}
