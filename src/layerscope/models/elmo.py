"""ELMo, the bidirectional language model of Peters et al. (2018), and its transformer variant (Peters et al. 2018b).

A word is read by its characters: convolutions of several widths over their embeddings, the maximum over places,
highways, a projection. Over the words run two stacks that never see one another, one from the left and one from the
right; a layer's output is both side by side. Layer 0 is the word by itself, twice, so that all layers have one width.
The stacks are LSTMs with projections, clipped cells and outputs, and skip connections, or transformers; `options.json`
describes them.

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


class _Options(BaseModel):
    """The base of the schemas of `options.json`: fields that this network does not need are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore")


class CharacterOptions(_Options):
    """The part `char_cnn` of the published options."""

    activation: Literal["relu", "tanh"] = "relu"
    filters: tuple[tuple[int, int], ...]  # the width of each convolution, and how many filters it has
    n_highway: int = Field(ge=0)
    embedding: dict[str, int]
    max_characters_per_token: int = Field(default=50, ge=3, le=1000)
    layer_norm: bool = False  # after the projection, as in the transformer variant


class StackOptions(_Options):
    """The part `lstm` of the published options; a transformer has attention heads and no clipping."""

    projection_dim: int = Field(ge=1)  # the width of one direction
    dim: int = Field(ge=1)  # of the memory cell, or of the feed-forward part
    n_layers: int = Field(ge=1)
    cell_clip: float | None = None
    proj_clip: float | None = None
    use_skip_connections: bool = True
    attention_heads: int | None = None  # set for the transformer variant


class ElmoOptions(_Options):
    """The description of a network in `options.json`."""

    char_cnn: CharacterOptions
    lstm: StackOptions

    @property
    def width(self) -> int:
        """The width of a layer: both directions."""
        return 2 * self.lstm.projection_dim


_FUSED = (torch.float32,)  # the float types that torch's kernel is used for
Carried = tuple[Tensor, Tensor]  # the output and the memory cell of a step, for each text


class ProjectedLSTM(nn.Module):
    """One direction of one layer: gates i, j, f, o, a memory cell that is clipped, a projection that is clipped."""

    def __init__(self, options: StackOptions) -> None:
        super().__init__()
        self.cell_clip, self.proj_clip = options.cell_clip, options.proj_clip
        self.input = nn.Linear(options.projection_dim, 4 * options.dim, bias=False)
        self.state = nn.Linear(options.projection_dim, 4 * options.dim)
        self.project = nn.Linear(options.dim, options.projection_dim, bias=False)
        with torch.no_grad():
            self.state.bias[2 * options.dim : 3 * options.dim] += 1  # which TensorFlow adds when it runs

    def forward(self, x: Tensor, begin: Carried | None = None) -> tuple[Tensor, Tensor]:
        """Return the outputs for inputs (batch, time, width), of the same shape, and the memory cells of every step."""
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

    @property
    def fused(self) -> bool:
        """Whether torch's own kernel, which is faster, gives the same, as it does where nothing is clipped."""
        return self.cell_clip is None and self.proj_clip is None and self.state.weight.dtype in _FUSED

    def outputs(self, x: Tensor) -> Tensor:
        """Return the outputs from a state of zeros."""
        return run_fused(x, [self.torch_weights()]) if self.fused else self(x)[0]

    def torch_weights(self, input_weight: Tensor | None = None) -> list[Tensor]:
        """Return the weights for torch's kernel, with gates in its order: i, f, j, o.

        `input_weight` takes the place of the weights of the input.
        """

        def gates(weight: Tensor) -> Tensor:
            enter, candidate, keep, show = weight.chunk(4)
            return torch.cat([enter, keep, candidate, show])

        entering = self.input.weight if input_weight is None else input_weight
        bias = gates(self.state.bias)
        return [gates(entering), gates(self.state.weight), bias, torch.zeros_like(bias), self.project.weight]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def run_fused(x: Tensor, directions: Sequence[list[Tensor]]) -> Tensor:
    """Run torch's own LSTM from a state of zeros, in one direction or both, on inputs (batch, time, width).

    It is one kernel already, and is not compiled: a compiler would take it apart into steps.
    """
    project = directions[0][-1]
    with torch.autocast(x.device.type, enabled=False), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "RNN module weights|LSTM with projections")  # only slower
        output, cell = (project.new_zeros(len(directions), len(x), width) for width in project.shape)
        weights = [weight for direction in directions for weight in direction]
        learns = torch.is_grad_enabled()
        ran = torch.lstm(x.to(project.dtype), (output, cell), weights, True, 1, 0.0, learns, len(directions) == 2, True)
    return ran[0]


class RecurrentLayer(nn.Module):
    """Both directions of one layer of the LSTM; from the second on a layer's input is added to its output."""

    def __init__(self, options: StackOptions, first: bool) -> None:
        super().__init__()
        self.skips = options.use_skip_connections and not first
        self.forwards, self.backwards = ProjectedLSTM(options), ProjectedLSTM(options)
        self.stateful = False
        self._carried: dict[str, Carried] = {}  # by direction, what the last batch ended in

    def forward(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Return the layer's output, with padding where the mask is 0; without a mask there is no padding."""
        fused = mask is None and self.forwards.fused and not self.stateful
        both = self._fused(x) if fused else self._masked(x, mask)
        return both + x if self.skips else both

    def _fused(self, x: Tensor) -> Tensor:
        """Run both directions in one kernel."""
        # The kernel gives each direction all of x, of which it needs one half: the other half gets weights of zero.
        ahead, behind = self.forwards.input.weight, self.backwards.input.weight
        none = torch.zeros_like(ahead)
        directions = [
            self.forwards.torch_weights(torch.cat([ahead, none], dim=1)),
            self.backwards.torch_weights(torch.cat([none, behind], dim=1)),
        ]
        return run_fused(x, directions)

    def _masked(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Run one direction after the other, the second on texts that are turned around."""
        mask = torch.ones(x.shape[:2], device=x.device) if mask is None else mask
        ahead, behind = x.chunk(2, dim=-1)
        turned = turned_around(mask)
        ran_back = self._run("backwards", _along(behind, turned), mask)
        return torch.cat([self._run("forwards", ahead, mask), _along(ran_back, turned)], dim=-1)

    def forget(self) -> None:
        """Begin with a state of zeros again."""
        self._carried = {}

    def _run(self, direction: str, x: Tensor, mask: Tensor) -> Tensor:
        """Run one direction, from what the last batch ended in where the network is stateful."""
        lstm: ProjectedLSTM = getattr(self, direction)
        if not self.stateful:
            return lstm.outputs(x)
        before = self._carried.get(direction)
        begin = None
        if before is not None:  # zeros for places that no batch has had yet
            output, cell = (
                torch.cat([part[: len(x)], part.new_zeros(max(0, len(x) - len(part)), part.shape[1])])
                for part in before
            )
            begin = output, cell
        outputs, cells = lstm(x, begin)
        last = (mask.long().sum(dim=1) - 1).clamp(min=0)
        texts = torch.arange(len(x), device=x.device)
        ended = (outputs[texts, last], cells[texts, last])
        if before is not None:  # places that this batch does not have keep what they had
            ended = (torch.cat([ended[0], before[0][len(x) :]]), torch.cat([ended[1], before[1][len(x) :]]))
        self._carried[direction] = (ended[0].detach(), ended[1].detach())
        return outputs


def turned_around(mask: Tensor) -> Tensor:
    """Return (batch, time) places that turn the real words of every text around and leave padding where it is."""
    places = torch.arange(mask.shape[1], device=mask.device).expand_as(mask)
    lengths = mask.long().sum(dim=1, keepdim=True)
    return torch.where(places < lengths, lengths - 1 - places, places)


def _along(x: Tensor, places: Tensor) -> Tensor:
    """Return the states of x at some places (batch, time)."""
    return x.gather(1, places.unsqueeze(-1).expand_as(x))


_BEGIN_TEXT, _END_TEXT, _BEGIN_WORD, _END_WORD, _PADDING = 256, 257, 258, 259, 260  # after the 256 bytes
CHARACTERS = 262  # all of these, shifted by 1: 0 is a place without a word


def word_characters(word: str, longest: int = 50) -> list[int]:
    """Return the ids of a word's characters (bytes of UTF-8) between its two marks, padded to `longest`."""
    return _between_marks(list(word.encode("utf-8", "replace")[: longest - 2]), longest)


def character_ids(words: Sequence[str], longest: int = 50) -> Tensor:
    """Return (words + 2, longest) ids of the characters of a text's words, between the text's two marks."""
    rows = [word_characters(word, longest) for word in words]
    return torch.tensor([_between_marks([_BEGIN_TEXT], longest), *rows, _between_marks([_END_TEXT], longest)])


def _between_marks(characters: list[int], longest: int) -> list[int]:
    """Return characters between the marks of a word, padded to `longest` and shifted by 1."""
    ids = [_BEGIN_WORD, *characters, _END_WORD]
    return [character + 1 for character in (*ids, *[_PADDING] * (longest - len(ids)))]


class CharacterEncoder(nn.Module):
    """Makes words (batch, words, width of one direction) from their characters (batch, words, characters)."""

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
        # A word that occurs often is read once.
        unique, place = torch.unique(ids.reshape(-1, ids.shape[-1]), dim=0, return_inverse=True)
        return self.read(unique)[place].reshape(*ids.shape[:-1], -1)

    def read(self, ids: Tensor) -> Tensor:
        """Return words (words, width) from their characters (words, characters)."""
        letters = self.embedding(ids).transpose(1, 2)
        words = torch.cat([self.activation(conv(letters).amax(dim=-1)) for conv in self.convolutions], dim=-1)
        for highway in self.highways:
            words = highway(words)
        return self.norm(self.projection(words))


class Highway(nn.Module):
    """A highway layer: g f(x) + (1 - g) x with a gate g of x."""

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
        """Return the layer's output, with padding where the mask is 0; without a mask there is no padding."""
        ahead, behind = x.chunk(2, dim=-1)
        if mask is None:
            return torch.cat([self.forwards(ahead), self.backwards(behind.flip(1)).flip(1)], dim=-1)
        places = torch.arange(mask.shape[1], device=mask.device)
        before = places[:, None] >= places[None, :]
        real = mask.bool()[:, None, :] | torch.eye(mask.shape[1], dtype=torch.bool, device=mask.device)
        return torch.cat([self.forwards(ahead, before & real), self.backwards(behind, before.T & real)], dim=-1)


class AttentionBlock(nn.Module):
    """Attention, then a feed-forward part, each after a norm and added to its input; the last block ends in a norm."""

    def __init__(self, options: StackOptions, last: bool) -> None:
        super().__init__()
        width, self.attention_heads = options.projection_dim, options.attention_heads or 1
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))
        self.up, self.down = nn.Linear(width, options.dim), nn.Linear(options.dim, width)
        self.attention_norm, self.feedforward_norm = Norm(width), Norm(width)
        self.final_norm = Norm(width) if last else nn.Identity()

    def forward(self, x: Tensor, sees: Tensor | None = None) -> Tensor:
        """Return the block's output; a place attends to those that `sees` (batch, from, to) allows, or up to itself."""
        y, split = self.attention_norm(x), (self.attention_heads, -1)
        projections = (self.query, self.key, self.value)
        query, key, value = (linear(y).unflatten(-1, split).transpose(1, 2) for linear in projections)
        allowed = None if sees is None else sees[:, None]
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, allowed, is_causal=sees is None)
        x = x + self.output(mixed.transpose(1, 2).flatten(2))
        x = x + self.down(torch.relu(self.up(self.feedforward_norm(x))))
        return self.final_norm(x)


class Norm(nn.Module):
    """A layer norm that divides by (standard deviation + 1e-6); torch's divides by the root of (variance + epsilon)."""

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
    """The whole network, which makes the states of layers 0..L from character ids and a mask."""

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
        """Return the states (batch, words, width) of layers 0..L, the text's two marks included; padding stays 0.

        With `places` (batch, words), `character_ids` are those of distinct words (words, characters).
        """
        words = self.words(character_ids) if places is None else self.words.read(character_ids)[places]
        return self.contextual(words, mask)

    def contextual(self, words: Tensor, mask: Tensor | None = None) -> list[Tensor]:
        """Return the same from words (batch, words, width of one direction); without a mask there is no padding."""
        x = self.doubled(words, mask)
        states = [x]
        if self.options.lstm.attention_heads is not None:
            x = x + positions(x.shape[1], words.shape[-1], x.device).to(x.dtype).repeat(1, 2)
        for layer in self.layers:
            x = layer(x, mask)
            states.append(x if mask is None else x * mask.unsqueeze(-1))
        return states


def positions(count: int, width: int, device: torch.device | None = None) -> Tensor:
    """Return position embeddings (count, width) of sines and cosines, as in Vaswani et al. (2017)."""
    rates = torch.exp(torch.arange(0, width, 2, device=device) * (-math.log(10000.0) / width))
    angles = torch.arange(count, device=device)[:, None] * rates
    both = torch.stack([torch.sin(angles), torch.cos(angles)], dim=-1)  # side by side: an even place and the odd one
    return both.flatten(1)[:, :width]
