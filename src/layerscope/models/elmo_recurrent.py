"""The layers of ELMo's LSTMs: projections, clipped cells and outputs, both directions, skip connections."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from layerscope.models.elmo_options import StackOptions

_FUSED = (torch.float32,)  # what torch's kernel is used for
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

    @property
    def fused(self) -> bool:
        """Whether torch's own kernel, which is faster, gives the same: nothing is clipped."""
        return self.cell_clip is None and self.proj_clip is None and self.state.weight.dtype in _FUSED

    def outputs(self, x: Tensor) -> Tensor:
        """The outputs from a state of zeros."""
        return run_fused(x, [self.torch_weights()]) if self.fused else self(x)[0]

    def torch_weights(self, input_weight: Tensor | None = None) -> list[Tensor]:
        """Gates in torch's order: i, f, j, o. `input_weight` stands in for the weights of what comes in."""

        def gates(weight: Tensor) -> Tensor:
            enter, candidate, keep, show = weight.chunk(4)
            return torch.cat([enter, keep, candidate, show])

        entering = self.input.weight if input_weight is None else input_weight
        bias = gates(self.state.bias)
        return [gates(entering), gates(self.state.weight), bias, torch.zeros_like(bias), self.project.weight]


@torch.compiler.disable  # type: ignore[untyped-decorator]
def run_fused(x: Tensor, directions: Sequence[list[Tensor]]) -> Tensor:
    """torch's own LSTM from a state of zeros, in one direction or in both: (batch, time, width in) to outputs.

    It is one kernel already, which a compiler would take apart into steps.
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
        """Without a mask there is no padding."""
        both = self._whole(x) if mask is None and self._together else self._masked(x, mask)
        return both + x if self.skips else both

    @property
    def _together(self) -> bool:
        return self.forwards.fused and not self.stateful

    def _whole(self, x: Tensor) -> Tensor:
        """Both directions at once, in one kernel: it gives each all of x, where each has weights for its half."""
        ahead, behind = self.forwards.input.weight, self.backwards.input.weight
        none = torch.zeros_like(ahead)
        directions = [
            self.forwards.torch_weights(torch.cat([ahead, none], dim=1)),
            self.backwards.torch_weights(torch.cat([none, behind], dim=1)),
        ]
        return run_fused(x, directions)

    def _masked(self, x: Tensor, mask: Tensor | None) -> Tensor:
        mask = torch.ones(x.shape[:2], device=x.device) if mask is None else mask
        ahead, behind = x.chunk(2, dim=-1)
        turned = turned_around(mask)
        ran_back = self._run("backwards", _along(behind, turned), mask)
        return torch.cat([self._run("forwards", ahead, mask), _along(ran_back, turned)], dim=-1)

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
