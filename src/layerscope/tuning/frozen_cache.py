"""The output of frozen blocks, cached so that they run once over the data and not in every epoch.

`PrefixedNetwork` is the network under training: the frozen blocks have no dropout, and do not run where a batch brings
their output along. The output comes from one of two caches. `PrefixStates` runs the frozen blocks once over the data
and keeps their output in the store, memory-mapped. Where rows are of one length, as windows of running text are,
`KeptStates` needs no pass of its own and no disk: the first epoch runs the frozen blocks as it must, their output is
kept in memory, and the later epochs do not run them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor, nn

from layerscope.data import Examples
from layerscope.errors import log
from layerscope.extraction.encoding import Item, encode, texts_of
from layerscope.extraction.forward import Packed, Runner
from layerscope.extraction.items import Items
from layerscope.extraction.loop import Encoder, Loop, Window
from layerscope.extraction.pooling import Reading
from layerscope.models import Model, Replay
from layerscope.models.architecture import block_modules, evaluating
from layerscope.models.replay import entering, state_of, wrap
from layerscope.models.selfcheck import probe_inputs
from layerscope.progress import progress
from layerscope.store import Artifact, is_sealed, seal, whole_file

_EVEN = 0.75  # the least mean length, as a share of the longest, for which a table of one length is not wasteful
_MOST_ON_CPU = 2 << 30  # bytes


class KeptStates:
    """A table (rows, longest, width) of the states of one layer, filled when a row is first seen."""

    def __init__(self, rows: int, longest: int, width: int, like: Tensor) -> None:
        self.table = torch.empty(rows, longest, width, dtype=like.dtype, device=like.device)
        self._seen = np.zeros(rows, dtype=bool)

    @staticmethod
    def fitting(items: Sequence[Item], width: int, like: Tensor) -> KeptStates | None:
        """Return a table for these items; None where it would be wasteful, or too large for half of the free memory."""
        lengths = np.asarray([len(item) for item in items])
        longest = int(lengths.max())
        size = len(items) * longest * width * like.element_size()
        room = torch.cuda.mem_get_info(like.device)[0] / 2 if like.device.type == "cuda" else _MOST_ON_CPU
        if lengths.mean() < _EVEN * longest or size > room:
            return None
        return KeptStates(len(items), longest, width, like)

    def states(self, rows: Sequence[int], time: int) -> Tensor | None:
        """Return (rows, time, width), or None where some of the rows have not been seen."""
        if not self._seen[list(rows)].all():
            return None
        return self.table.index_select(0, self._index(rows))[:, :time]

    @contextmanager
    def watching(self, block: nn.Module, rows: Sequence[int]) -> Iterator[None]:
        """Keep the output of a block for these rows in the forward that follows."""

        def keep(_: nn.Module, __: Any, output: Any) -> None:
            state = state_of(output).detach()
            self.table[:, : state.shape[1]].index_copy_(0, self._index(rows), state.to(self.table.dtype))
            self._seen[list(rows)] = True

        hook = block.register_forward_hook(keep)
        try:
            yield
        finally:
            hook.remove()

    def _index(self, rows: Sequence[int]) -> Tensor:
        index = torch.tensor(list(rows))
        if self.table.device.type == "cuda":
            index = index.pin_memory()  # else the copy would wait for all work of the GPU
        return index.to(self.table.device, non_blocking=True)


CHOICES = "real_choices"  # the input that says which choices of a batch are real, (texts, choices)
INDEX = "prefix_index"  # instead of the states, their rows in a table on the device, (texts, time)
ROWS = "prefix_rows"  # or the numbers of the rows, whose states are kept when they are first made
STATES = "prefix_states"  # the input that holds layer `frozen` of a batch, (texts, time, width)


class PrefixedNetwork(nn.Module):
    """A network under training whose blocks 1..frozen do not run where a batch brings their output along.

    The network's own forward prepares masks, positions and whatever else its blocks need; the frozen blocks answer with
    what they are given, the last of them with the cached states. Frozen modules stay in evaluation mode, so their
    dropout is off with the cache and without it.
    """

    accepts_loss_kwargs = False  # the Trainer asks for this and the next
    _keys_to_ignore_on_save = None

    def __init__(self, model: Model, frozen: int, trains_embeddings: bool, network: Any = None) -> None:
        super().__init__()
        self.network = model.network if network is None else network
        self.frozen = frozen
        self._model = [model]  # in a list: no second registration of the network
        self.table: Tensor | None = None  # all cached states, where they fit on the device
        self.kept_states: KeptStates | None = None  # or those that the training itself makes as it goes
        self._mode: bool | None = None  # training or not, once it has been said
        self._all: list[nn.Parameter] = []
        self._containers = self._outputs(model) if frozen else []
        self._blocks = block_modules(model.network.base_model, model.architecture)[:frozen]
        self._quiet: list[nn.Module] = [] if model.architecture.shared else list(self._blocks)
        if not trains_embeddings:
            self._quiet += [m for m in self.network.modules() if isinstance(m, nn.Embedding)]
            self._quiet += _embedding_parts(model)

    @staticmethod
    def _outputs(model: Model) -> list[Any]:
        """Return how every block wraps the state that it returns, with None in its place."""
        with torch.no_grad(), evaluating(model.network):
            return [call.output for call in Replay(model, probe_inputs(model)).calls]

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """Return what is trained, for checkpoints of an interrupted training; the rest is the model as opened."""
        trained = {name for name, parameter in self.named_parameters() if parameter.requires_grad}
        return {name: value for name, value in super().state_dict(*args, **kwargs).items() if name in trained}

    def train(self, mode: bool = True) -> PrefixedNetwork:
        if self._mode == mode == self.network.training:  # the Trainer says it again in every step
            return self
        super().train(mode)
        for module in self._quiet:
            module.eval()
        self._mode = mode
        return self

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """Return all parameters; the list is made once, as a training asks for it twice in every step."""
        if not recurse:
            return super().parameters(recurse=False)
        self._all = self._all or list(super().parameters())
        return iter(self._all)

    def forward(self, **inputs: Any) -> dict[str, Tensor]:
        real, labels = (inputs.pop(name, None) for name in (CHOICES, "labels"))
        with self.answering_prefix(inputs):
            logits = self.network(**inputs).logits
        if real is not None:
            logits = logits.masked_fill(~real, -torch.inf)
        answer = {"logits": logits}
        return answer if labels is None else {"loss": _loss(logits, labels), **answer}

    def answering_prefix(self, inputs: dict[str, Any]) -> AbstractContextManager[None]:
        """Return a context in which the frozen blocks answer with what a batch brings along, if it does.

        What the batch brings along is taken out of the inputs.
        """
        states, index, rows = (inputs.pop(name, None) for name in (STATES, INDEX, ROWS))
        if index is not None:
            assert self.table is not None
            states = self.table[index].to(self.network.dtype)
        if rows is not None:
            assert self.kept_states is not None
            states = self.kept_states.states(rows, inputs["input_ids"].shape[-1])
            if states is None:  # some of them for the first time
                return self.kept_states.watching(self._blocks[-1], rows)
        return nullcontext() if states is None else self._answering(states)

    @contextmanager
    def _answering(self, states: Tensor) -> Iterator[None]:
        """Let the first `frozen` block calls of this forward pass the state through; the last one gives `states`."""
        time_first = self._model[0].architecture.time_first
        raw = states.transpose(0, 1) if time_first else states
        passed = 0
        modules = list(dict.fromkeys(self._blocks))
        originals = {id(m): m.forward for m in modules}

        def answer(module: nn.Module) -> Any:
            def forward(*args: Any, **kwargs: Any) -> Any:
                nonlocal passed
                passed += 1
                if passed > self.frozen:  # a shared block, above the prefix
                    return originals[id(module)](*args, **kwargs)
                state = entering(args, kwargs)
                if passed == self.frozen:
                    more = state.shape[1] - raw.shape[1]  # what the network has padded by itself, as Longformer does
                    state = nn.functional.pad(raw, (0, 0, 0, more)) if more and not time_first else raw
                return wrap(self._containers[passed - 1], state)

            return forward

        for module in modules:
            module.forward = answer(module)
        try:
            yield
        finally:
            for module in modules:
                del module.forward

    def __getattr__(self, name: str) -> Any:
        if name == "config":  # the Trainer looks for it
            return self.network.config
        return super().__getattr__(name)


def _loss(logits: Tensor, labels: Tensor) -> Tensor:
    """Return the cross entropy for classes and choices, the squared error for numbers."""
    if labels.is_floating_point():
        return nn.functional.mse_loss(logits.squeeze(-1).float(), labels)
    return nn.functional.cross_entropy(logits.float(), labels)


def _embedding_parts(model: Model) -> list[nn.Module]:
    """Return the modules beside the blocks that make layer 0: embeddings with their norms, projections and dropout."""
    base, head = model.network.base_model, set(model.architecture.base_head)
    blocks = model.architecture.blocks.split(".")[0]
    return [child for name, child in base.named_children() if name not in head and name != blocks]


GIB = 1 << 30
MOST = 20.0  # GiB; above this the frozen blocks are run again in every epoch
_WORTH_SAYING = 0.1  # GiB
_SHARD_TOKENS = 1 << 18
_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class PrefixCache:
    """States of one layer, token by token, for every item (a text or a choice) of a split."""

    def __init__(self, files: Sequence[Any], lengths: np.ndarray, shard: np.ndarray, offset: np.ndarray) -> None:
        self._files, self.lengths, self._shard, self._offset = files, lengths, shard, offset
        self._start = np.cumsum(lengths) - lengths
        self._open: dict[int, Tensor] = {}

    def item(self, place: int) -> Tensor:
        """Return (tokens, width) of one item, as a view of the file."""
        shard, start = int(self._shard[place]), int(self._offset[place])
        if shard not in self._open:
            self._open[shard] = self._files[shard].get_tensor("states")  # memory-mapped: read when it is used
        return self._open[shard][start : start + int(self.lengths[place])]

    def batch(self, places: Sequence[int], left: bool) -> Tensor:
        """Return (items, longest, width) in float32; padding positions are 0."""
        states = [self.item(place) for place in places]
        side = "left" if left else "right"
        return torch.nn.utils.rnn.pad_sequence(states, batch_first=True, padding_side=side).float()

    def table(self, device: torch.device) -> Tensor:
        """Return (tokens + 1, width): all states in the order of the items, on a device; the last row is 0."""
        shards = [file.get_tensor("states").to(device) for file in self._files]
        return torch.cat([*shards, torch.zeros(1, shards[0].shape[1], dtype=shards[0].dtype, device=device)])

    @property
    def tokens(self) -> int:
        return int(self.lengths.sum())

    def index(self, places: Sequence[int], left: bool) -> Tensor:
        """Return (items, longest): the row of each token in `table`."""
        lengths = self.lengths[list(places)]
        longest = int(lengths.max())
        index = np.full((len(places), longest), self.tokens)
        for row, place, length in zip(index, places, lengths, strict=True):
            start = longest - length if left else 0
            row[start : start + length] = self._start[place] + np.arange(length)
        return torch.from_numpy(index)


class PrefixStates(Artifact):
    """One layer of a model, token by token, over some examples: run once, stored in shards of whole texts."""

    kind = "prefix"
    version = 3

    def __init__(
        self,
        model: Model,
        examples: Examples,
        layer: int,
        max_length: int,
        dtype: str,
        encoder: Encoder = encode,
        asked: Mapping[str, Any] | None = None,
    ) -> None:
        self.model, self.examples, self.layer, self.dtype = model, examples, layer, dtype
        self.reading = Reading("tokens", special=True, max_length=max_length)
        self._asked = dict(asked or {})  # what decides the items besides, where another encoder makes them
        self._loop = Loop.over_tokens([model], self.reading, encoder=encoder)

    def spec(self) -> dict[str, Any]:
        model, examples = self.model.spec(), self.examples.spec()
        settings = {"layer": self.layer, "reading": self.reading.spec(), "dtype": self.dtype}
        return {"model": model, "examples": examples, **settings, **self._asked}

    @cached_property
    def items(self) -> Items:
        """The tokens of every text or choice."""
        return self._loop.items(self.examples)[0]

    @cached_property
    def lengths(self) -> np.ndarray:
        return self.items.lengths

    @property
    def size(self) -> float:
        """The size on the disk in GiB."""
        return int(self.lengths.sum()) * self.model.width * _DTYPES[self.dtype].itemsize / GIB

    @cached_property
    def _shards(self) -> np.ndarray:
        """The shard of every item."""
        texts = texts_of(self.examples)
        ends = np.cumsum(np.bincount(texts, weights=self.lengths, minlength=len(self.examples)))
        return np.unique(ends // _SHARD_TOKENS, return_inverse=True)[1][texts]

    def build(self, folder: Path) -> None:
        """Run the model over the examples and write the shards; those that an earlier try left are kept."""
        runner = Runner(self.model, [self.layer], self.reading)

        def prepare(window: Window, places: np.ndarray) -> Packed:
            return runner.pack_rows(window.chosen(places)[0])

        def run(packed: Packed) -> Tensor:
            states = runner.run(packed)[self.layer]  # (tokens of all items, width)
            return states.to("cpu", _DTYPES[self.dtype])

        title = f"{self.model.name}, blocks 1..{self.layer}, once"
        with progress(title, len(self.examples)) as advance, runner.prepared():
            for k, window in enumerate(self._windows()):
                path = folder / _shard_name(k)
                if is_sealed(path):
                    advance(len(window.examples))
                    continue
                items = window.items[0]
                states: dict[int, Tensor] = {}
                for places, rows in self._loop.through(window, run, advance=advance, prepare=prepare):
                    states |= zip(places.tolist(), rows.split(items.lengths[places].tolist()), strict=True)
                with whole_file(path) as temporary:
                    save_file({"states": torch.cat([states[i] for i in range(len(items))])}, temporary)
                seal(path)

    def _windows(self) -> Iterator[Window]:
        texts = texts_of(self.examples)
        for k in range(self._count):
            at = np.flatnonzero(self._shards == k)
            yield Window(self.examples.take(np.unique(texts[at])), [self.items.at(at)])

    @property
    def _count(self) -> int:
        return int(self._shards[-1]) + 1

    def open(self) -> PrefixCache:
        """Return the states, from the store, where they are made if they are not there."""
        folder = self.produce()
        files = [safe_open(folder / _shard_name(k), framework="pt") for k in range(self._count)]
        offset = np.cumsum(self.lengths) - self.lengths
        first = np.asarray([offset[self._shards == k].min() for k in range(self._count)])
        return PrefixCache(files, self.lengths, self._shards, offset - first[self._shards])


def _shard_name(shard: int) -> str:
    return f"shard-{shard:05d}.safetensors"


def prefix_cache(
    model: Model,
    examples: Examples,
    layer: int,
    max_length: int,
    dtype: str = "float32",
    most: float = MOST,
    **options: Any,
) -> PrefixCache | None:
    """Return layer `layer` of every item, run once and stored; None, with a warning, if it is above `most` GiB."""
    states = PrefixStates(model, examples, layer, max_length, dtype, **options)
    what = f"Layer {layer} of {len(states.items)} texts of {examples.task} ({examples.split})"
    if states.size > most:
        log.warning(
            "%s would take %.1f GiB, above the limit of %.1f: it is computed in every epoch.", what, states.size, most
        )
        return None
    say = log.warning if states.size > _WORTH_SAYING else log.info
    say("%s takes %.2f GiB; it is computed once and kept in the store.", what, states.size)
    return states.open()
