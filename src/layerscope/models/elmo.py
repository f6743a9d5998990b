"""ELMo, the bidirectional language model of Peters et al. (2018), and its transformer variant (Peters et al. 2018b).

A word is its characters: convolutions of several widths over their embeddings, the maximum over places, highways, a
projection. Over those run two stacks that never see one another, one from the left and one from the right; a layer's
output is both side by side. Layer 0 is the word by itself, twice, so that all layers have one width.

The published code carries the state that a text ends in over to the text in the same place of the next batch. Here a
text begins with a state of zeros, so that batches and their order change nothing, unless `stateful` is set.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

_BEGIN_TEXT, _END_TEXT, _BEGIN_WORD, _END_WORD, _PADDING = 256, 257, 258, 259, 260  # after the 256 bytes
CHARACTERS = 262  # those, shifted by 1: 0 is a place without a word

_FUSED = (torch.float32,)  # what torch's kernel is used for
Carried = tuple[Tensor, Tensor]  # the output and the memory cell of a step, for each text


class _Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class CharacterOptions(_Options):
    """`char_cnn` of the published options."""

    activation: Literal["relu", "tanh"] = "relu"
    filters: tuple[tuple[int, int], ...]  # width and number of each
    n_highway: int = Field(ge=0)
    embedding: dict[str, int]
    max_characters_per_token: int = Field(default=50, ge=3, le=1000)
    layer_norm: bool = False  # after the projection, as in the transformer variant


class StackOptions(_Options):
    """`lstm` of the published options; a transformer has attention heads and no clipping."""

    projection_dim: int = Field(ge=1)  # the width of one direction
    dim: int = Field(ge=1)  # of the memory cell, or of the feed-forward part
    n_layers: int = Field(ge=1)
    cell_clip: float | None = None
    proj_clip: float | None = None
    use_skip_connections: bool = True
    attention_heads: int | None = None  # set for the transformer variant


class ElmoOptions(_Options):
    """What `options.json` says of a network."""

    char_cnn: CharacterOptions
    lstm: StackOptions

    @property
    def width(self) -> int:
        """Of a layer: both directions."""
        return 2 * self.lstm.projection_dim


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


class ProjectedLSTM(nn.Module):
    """One direction of one layer: gates i, j, f, o, a memory cell that is clipped, a projection that is clipped."""

    def __init__(self, options: StackOptions) -> None:
        super().__init__()
        self.cell_clip, self.proj_clip = options.cell_clip, options.proj_clip
        self.input = nn.Linear(options.projection_dim, 4 * options.dim, bias=False)
        self.state = nn.Linear(options.projection_dim, 4 * options.dim)
        self.project = nn.Linear(options.dim, options.projection_dim, bias=False)
        with torch.no_grad():
            self.state.bias[2 * options.dim : 3 * options.dim] += 1  # TensorFlow adds it when it runs

    def forward(self, x: Tensor, begin: Carried | None = None) -> tuple[Tensor, Tensor]:
        """(batch, time, width) to the outputs of the same shape, and the memory cells of every step."""
        driven = self.input(x).unbind(dim=1)
        output, cell = begin or (x.new_zeros(len(x), x.shape[-1]), x.new_zeros(len(x), self.project.in_features))
        outputs, cells = [], []
        for step in driven:
            enter, candidate, keep, show = (step + self.state(output)).chunk(4, dim=-1)
            cell = torch.sigmoid(enter) * torch.tanh(candidate) + torch.sigmoid(keep) * cell
            cell = cell if self.cell_clip is None else cell.clamp(-self.cell_clip, self.cell_clip)
            output = self.project(torch.sigmoid(show) * torch.tanh(cell))
            output = output if self.proj_clip is None else output.clamp(-self.proj_clip, self.proj_clip)
            outputs.append(output)
            cells.append(cell)
        return torch.stack(outputs, dim=1), torch.stack(cells, dim=1)

    def outputs(self, x: Tensor) -> Tensor:
        """The same outputs from a state of zeros; where nothing is clipped, by torch's own kernel, which is faster."""
        if self.cell_clip is not None or self.proj_clip is not None or self.state.weight.dtype not in _FUSED:
            return self(x)[0]
        with torch.autocast(x.device.type, enabled=False), warnings.catch_warnings():
            warnings.filterwarnings("ignore", "RNN module weights|LSTM with projections")  # only slower
            begin = (
                x.new_zeros(1, len(x), x.shape[-1]).float(),
                x.new_zeros(1, len(x), self.project.in_features).float(),
            )
            ran = torch.lstm(
                x.to(begin[0].dtype), begin, self._torch_weights(), True, 1, 0.0, torch.is_grad_enabled(), False, True
            )
        return ran[0]

    def _torch_weights(self) -> list[Tensor]:
        """Gates in torch's order: i, f, j, o."""

        def gates(weight: Tensor) -> Tensor:
            enter, candidate, keep, show = weight.chunk(4)
            return torch.cat([enter, keep, candidate, show])

        bias = gates(self.state.bias)
        return [gates(self.input.weight), gates(self.state.weight), bias, torch.zeros_like(bias), self.project.weight]


class RecurrentLayer(nn.Module):
    """Both directions of one layer of the LSTM; from the second on a layer's input is added to its output."""

    def __init__(self, options: StackOptions, first: bool) -> None:
        super().__init__()
        self.skips = options.use_skip_connections and not first
        self.forwards, self.backwards = ProjectedLSTM(options), ProjectedLSTM(options)
        self.stateful = False
        self._carried: dict[str, Carried] = {}  # by direction, what the last batch ended in

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        ahead, behind = x.chunk(2, dim=-1)
        turned = turned_around(mask)
        ran_back = self._run("backwards", _along(behind, turned), mask)
        both = torch.cat([self._run("forwards", ahead, mask), _along(ran_back, turned)], dim=-1)
        return both + x if self.skips else both

    def forget(self) -> None:
        """Begin with a state of zeros again."""
        self._carried = {}

    def _run(self, direction: str, x: Tensor, mask: Tensor) -> Tensor:
        lstm: ProjectedLSTM = getattr(self, direction)
        if not self.stateful:
            return lstm.outputs(x)
        before = self._carried.get(direction)
        outputs, cells = lstm(x, None if before is None else _fitted(before, len(x)))
        last = (mask.long().sum(dim=1) - 1).clamp(min=0)
        texts = torch.arange(len(x), device=x.device)
        ended = (outputs[texts, last], cells[texts, last])
        if before is not None:  # places that this batch does not have keep what they had
            ended = (torch.cat([ended[0], before[0][len(x) :]]), torch.cat([ended[1], before[1][len(x) :]]))
        self._carried[direction] = (ended[0].detach(), ended[1].detach())
        return outputs


def _fitted(carried: Carried, count: int) -> Carried:
    """The carried states of the first `count` places; zeros for places that no batch has had yet."""
    output, cell = (
        torch.cat([part[:count], part.new_zeros(max(0, count - len(part)), part.shape[1])]) for part in carried
    )
    return output, cell


def turned_around(mask: Tensor) -> Tensor:
    """(batch, time) places that turn the real words of every text around and leave its padding where it is."""
    places = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    lengths = mask.long().sum(dim=1, keepdim=True)
    return torch.where(places < lengths, lengths - 1 - places, places)


def _along(x: Tensor, places: Tensor) -> Tensor:
    return x.gather(1, places.unsqueeze(-1).expand_as(x))


class AttentiveLayer(nn.Module):
    """Both directions of one layer of the transformer variant: each word attends to those before (or after) it."""

    def __init__(self, options: StackOptions, last: bool) -> None:
        super().__init__()
        self.forwards, self.backwards = (AttentionBlock(options, last) for _ in range(2))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        ahead, behind = x.chunk(2, dim=-1)
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

    def forward(self, x: Tensor, sees: Tensor) -> Tensor:
        y = self.attention_norm(x)
        query, key, value = (self._by_head(linear(y)) for linear in (self.query, self.key, self.value))
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=sees[:, None])
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

    def forward(self, words: Tensor, mask: Tensor) -> Tensor:
        return torch.cat([words, words], dim=-1) * mask.unsqueeze(-1)


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

    def contextual(self, words: Tensor, mask: Tensor) -> list[Tensor]:
        """The same from words (batch, words, width of one direction) that are read already."""
        x = self.doubled(words, mask)
        states = [x]
        if self.options.lstm.attention_heads is not None:
            x = x + positions(x.shape[1], words.shape[-1]).to(x).repeat(1, 2)
        for layer in self.layers:
            x = layer(x, mask)
            states.append(x * mask.unsqueeze(-1))
        return states


def positions(count: int, width: int) -> Tensor:
    """(count, width) sines and cosines, as in Vaswani et al. (2017)."""
    angles = torch.arange(count)[:, None] * torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    table = torch.zeros(count, width)
    table[:, 0::2], table[:, 1::2] = torch.sin(angles), torch.cos(angles)[:, : width // 2]
    return table
