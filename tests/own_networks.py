"""Small networks of nobody's family, and what reads texts for them."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_sequence

from layerscope.data import Examples

WORDS = 50


def word_numbers(texts, max_length):
    """Words by a number that their letters give; 0 is padding."""
    split = [text.split() if isinstance(text, str) else list(text) for text in texts]
    return [torch.tensor([1 + sum(map(ord, word)) % (WORDS - 1) for word in words[:max_length]]) for words in split]


def by_words(texts, max_length=100):
    """A batch of words, padded on the right."""
    ids = pad_sequence(word_numbers(texts, max_length), batch_first=True)
    mask = ids > 0
    return {"inputs": ids, "mask": mask, "words": torch.where(mask, torch.arange(ids.shape[1]), -1)}


def with_lengths(texts, max_length=100):
    batch = by_words(texts, max_length)
    return {**batch, "inputs": (batch["inputs"], batch["mask"].sum(dim=1))}


class Recurrent(nn.Module):
    """A BiLSTM of two layers over packed sequences."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(WORDS, 6, padding_idx=0)
        self.lstms = nn.ModuleList(nn.LSTM(w, 5, bidirectional=True, batch_first=True) for w in (6, 10))

    def forward(self, ids, lengths):
        x = pack_padded_sequence(self.embed(ids), lengths.cpu(), batch_first=True, enforce_sorted=False)
        for lstm in self.lstms:
            x, _ = lstm(x)
        return x


class Convolutional(nn.Module):
    """Two convolutions over words; with `masked` padding is set to 0 before each, so that it changes nothing."""

    def __init__(self, masked: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(WORDS, 6)
        self.convolutions = nn.ModuleList(nn.Conv1d(6, 6, 3, padding=1) for _ in range(2))
        self.masked = masked

    def forward(self, ids):
        real = (ids > 0)[:, None]
        x = self.embed(ids).transpose(1, 2)
        for convolution in self.convolutions:
            x = torch.tanh(convolution(x * real if self.masked else x))
        return x


class Plain(nn.Module):
    """Three linear blocks over the embeddings of tokens, as a tokenizer of transformers numbers them."""

    def __init__(self, vocabulary: int = 200, width: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(3))

    def forward(self, input_ids):
        x = self.embed(input_ids)
        for block in self.blocks:
            x = block(x)
        return x


def some_examples(count: int = 12) -> Examples:
    """Texts of different lengths, with labels."""
    draw = np.random.default_rng(0)
    words = np.asarray(["the", "cat", "sat", "on", "a", "mat", "and", "one", "dog", "ran", "far", "away", "from", "it"])
    texts = [" ".join(draw.choice(words, size=draw.integers(1, 9))) for _ in range(count)]
    return Examples("own", "all", texts, np.arange(count), labels=np.arange(count) % 2, label_names=("no", "yes"))
