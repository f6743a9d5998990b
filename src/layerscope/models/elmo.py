"""ELMo, the bidirectional language model of Peters et al. (2018), and its transformer variant (Peters et al. 2018b).

A word is its characters: convolutions of several widths over their embeddings, the maximum over places, highways, a
projection. Over those run two stacks that never see one another, one from the left and one from the right; a layer's
output is both side by side. Layer 0 is the word by itself, twice, so that all layers have one width.

The published code carries the state that a text ends in over to the text in the same place of the next batch. Here a
text begins with a state of zeros, so that batches and their order change nothing, unless `stateful` is set.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from layerscope.models.elmo_options import ElmoOptions, StackOptions
from layerscope.models.elmo_recurrent import RecurrentLayer

_BEGIN_TEXT, _END_TEXT, _BEGIN_WORD, _END_WORD, _PADDING = 256, 257, 258, 259, 260  # after the 256 bytes
CHARACTERS = 262  # those, shifted by 1: 0 is a place without a word


def word_characters(word: str, longest: int = 50) -> list[int]:
    """The ids of a word's characters (bytes of UTF-8) between its two marks, filled up to `longest`."""
    return _between_marks(list(word.encode("utf-8", "replace")[: longest - 2]), longest)


def character_ids(words: Sequence[str], longest: int = 50) -> Tensor:
    """(words + 2, longest) ids of the characters of a text's words, between the text's two marks."""
    rows = [word_characters(word, longest) for word in words]
    return torch.tensor([_between_marks([_BEGIN_TEXT], longest), *rows, _between_marks([_END_TEXT], longest)])


def _between_marks(characters: list[int], longest: int) -> list[int]:
    ids = [_BEGIN_WORD, *characters, _END_WORD]
    return [character + 1 for character in (*ids, *[_PADDING] * (longest - len(ids)))]


class CharacterEncoder(nn.Module):
    """Words from their characters: (batch, words, characters) to (batch, words, width of one direction)."""

    def __init__(self, options: ElmoOptions) -> None:
        super().__init__()
        cnn = options.char_cnn
        filters = sum(number for _, number in cnn.filters)
        self.embedding = nn.Embedding(CHARACTERS, cnn.embedding["dim"], padding_idx=0)
        self.convolutions = nn.ModuleList(
            nn.Conv1d(cnn.embedding["dim"], number, kernel_size=width) for width, number in cnn.filters
        )
        self.highways = nn.ModuleList(Highway(filters) for _ in range(cnn.n_highway))
        self.projection = nn.Linear(filters, options.lstm.projection_dim)
        self.norm = Norm(options.lstm.projection_dim) if cnn.layer_norm else nn.Identity()
        self.activation = torch.relu if cnn.activation == "relu" else torch.tanh

    def forward(self, ids: Tensor) -> Tensor:
        unique, place = torch.unique(ids.reshape(-1, ids.shape[-1]), dim=0, return_inverse=True)
        return self.read(unique)[place].reshape(*ids.shape[:-1], -1)  # a word that occurs often is read once

    def read(self, ids: Tensor) -> Tensor:
        """(words, characters) to (words, width)."""
        letters = self.embedding(ids).transpose(1, 2)
        words = torch.cat([self.activation(conv(letters).amax(dim=-1)) for conv in self.convolutions], dim=-1)
        for highway in self.highways:
            words = highway(words)
        return self.norm(self.projection(words))


class Highway(nn.Module):
    """g f(x) + (1 - g) x with a gate g of x."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.transform, self.gate = nn.Linear(width, width), nn.Linear(width, width)
        nn.init.constant_(self.gate.bias, -2.0)  # it begins by letting most of x through

    def forward(self, x: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x))
        return gate * torch.relu(self.transform(x)) + (1 - gate) * x


class AttentiveLayer(nn.Module):
    """Both directions of one layer of the transformer variant: each word attends to those before (or after) it."""

    def __init__(self, options: StackOptions, last: bool) -> None:
        super().__init__()
        self.forwards, self.backwards = (AttentionBlock(options, last) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Without a mask there is no padding."""
        ahead, behind = x.chunk(2, dim=-1)
        if mask is None:
            return torch.cat([self.forwards(ahead), self.backwards(behind.flip(1)).flip(1)], dim=-1)
        places = torch.arange(mask.shape[1], device=mask.device)
        before = places[:, None] >= places[None, :]
        real = mask.bool()[:, None, :] | torch.eye(mask.shape[1], dtype=torch.bool, device=mask.device)
        return torch.cat([self.forwards(ahead, before & real), self.backwards(behind, before.T & real)], dim=-1)


class AttentionBlock(nn.Module):
    """Attention, then a feed-forward part, each behind a norm and added to what came in; the last ends in a norm."""

    def __init__(self, options: StackOptions, last: bool) -> None:
        super().__init__()
        width, self.attention_heads = options.projection_dim, options.attention_heads or 1
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, options.dim), nn.Linear(options.dim, width)
        self.attention_norm, self.feedforward_norm = Norm(width), Norm(width)
        self.final_norm = Norm(width) if last else nn.Identity()

    def forward(self, x: Tensor, sees: Tensor | None = None) -> Tensor:
        """A place attends to those that `sees` (batch, from, to) allows; without it, to those up to itself."""
        y = self.attention_norm(x)
        query, key, value = (self._by_head(linear(y)) for linear in (self.query, self.key, self.value))
        allowed = None if sees is None else sees[:, None]
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, allowed, is_causal=sees is None)
        x = x + self.output(mixed.transpose(1, 2).flatten(2))
        x = x + self.down(torch.relu(self.up(self.feedforward_norm(x))))
        return self.final_norm(x)

    def _by_head(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.attention_heads, -1)).transpose(1, 2)


class Norm(nn.Module):
    """Divides by (standard deviation + 1e-6), where torch's own divides by the root of (variance + epsilon)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))

    def forward(self, x: Tensor) -> Tensor:
        spread = x.std(dim=-1, correction=0, keepdim=True)
        return self.weight * (x - x.mean(dim=-1, keepdim=True)) / (spread + 1e-6) + self.bias


class Doubled(nn.Module):
    """Layer 0: each word by itself, twice, so that it is as wide as the other layers; 0 where there is no word."""

    def forward(self, words: Tensor, mask: Tensor | None) -> Tensor:
        twice = torch.cat([words, words], dim=-1)
        return twice if mask is None else twice * mask.unsqueeze(-1)


class Elmo(nn.Module):
    """The whole network: character ids and a mask to the states of layers 0..L."""

    def __init__(self, options: ElmoOptions) -> None:
        super().__init__()
        self.options = options
        self.words, self.doubled = CharacterEncoder(options), Doubled()
        depth, stack = options.lstm.n_layers, options.lstm
        self.layers = nn.ModuleList(
            RecurrentLayer(stack, first=k == 0)
            if stack.attention_heads is None
            else AttentiveLayer(stack, last=k == depth - 1)
            for k in range(depth)
        )

    @property
    def stateful(self) -> bool:
        """Whether a batch begins with the states that the batch before ended in, as in the published code."""
        return any(layer.stateful for layer in self.layers if isinstance(layer, RecurrentLayer))

    @stateful.setter
    def stateful(self, carries: bool) -> None:
        for layer in self.layers:
            if isinstance(layer, RecurrentLayer):
                layer.stateful = carries
                layer.forget()

    def forward(self, character_ids: Tensor, mask: Tensor, places: Tensor | None = None) -> list[Tensor]:
        """States of (batch, words, width), the two marks of the text among the words; padding stays 0.

        With `places` (batch, words), `character_ids` are those of distinct words (words, characters).
        """
        words = self.words(character_ids) if places is None else self.words.read(character_ids)[places]
        return self.contextual(words, mask)

    def contextual(self, words: Tensor, mask: Tensor | None = None) -> list[Tensor]:
        """The same from words (batch, words, width of one direction) that are read already; no mask, no padding."""
        x = self.doubled(words, mask)
        states = [x]
        if self.options.lstm.attention_heads is not None:
            x = x + positions(x.shape[1], words.shape[-1], x.device).to(x.dtype).repeat(1, 2)
        for layer in self.layers:
            x = layer(x, mask)
            states.append(x if mask is None else x * mask.unsqueeze(-1))
        return states


def positions(count: int, width: int, device: torch.device | None = None) -> Tensor:
    """(count, width) sines and cosines, as in Vaswani et al. (2017)."""
    rates = torch.exp(torch.arange(0, width, 2, device=device) * (-math.log(10000.0) / width))
    angles = torch.arange(count, device=device)[:, None] * rates
    both = torch.stack([torch.sin(angles), torch.cos(angles)], dim=-1)  # side by side: an even place and the odd one
    return both.flatten(1)[:, :width]
