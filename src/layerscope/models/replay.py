"""Replay: one ordinary forward records what each block was called with, and any block can then run on any state.

The arguments are those of the recorded forward; the state is the caller's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from layerscope.errors import InputError, ModelError

if TYPE_CHECKING:
    from layerscope.models.load import Model

_STATE = "hidden_states"  # the name that transformers gives the state where it is not positional


@dataclass(frozen=True)
class Call:
    """The recorded call of one block: its arguments apart from the state, and how it wraps the state it returns."""

    module: nn.Module
    args: tuple[Any, ...]  # after the state
    kwargs: Mapping[str, Any]
    positional: bool  # whether the state was the first positional argument
    output: Any  # the block's whole output, with None in place of the state

    def run(self, state: Tensor) -> Tensor:
        if self.positional:
            return state_of(self.module(state, *self.args, **self.kwargs))
        return state_of(self.module(*self.args, **{_STATE: state}, **self.kwargs))


class Replay:
    """The states of one forward, and every block ready to be run again.

    Args:
        model: A `Model`.
        inputs: What the network is called with, as its tokenizer gives it.

    Attributes:
        states: `states[l]` is layer l, (batch, time, width): 0 the embedding output, l the raw output of block l.
        result: What the network answered.
        calls: What each block was called with.

    Example:
        >>> import torch, layerscope as ls
        >>> model = ls.load("garden:bert-s0")
        >>> with torch.no_grad():
        ...     replay = ls.Replay(model, model.tokenizer("a file", return_tensors="pt"))
        ...     again = replay.run(replay.states[1], 2)
        >>> torch.equal(again, replay.states[2])
        True
    """

    def __init__(self, model: Model, inputs: Mapping[str, Any]) -> None:
        from transformers import Cache

        self._network = model.network
        self._inputs = dict(inputs)
        self._time_first = model.architecture.time_first
        self._blocks = model.blocks()
        calls: list[tuple[Call, Tensor, Tensor]] = []
        with ExitStack() as stack:
            stack.enter_context(caches_off(self._network))
            for module in dict.fromkeys(self._blocks):
                hook = module.register_forward_hook(_recorder(calls), with_kwargs=True)
                stack.callback(hook.remove)
            self.result = self._network(**self._inputs)
        if [call.module for call, _, _ in calls] != self._blocks:
            raise ModelError(
                f"{model.name} ({model.architecture.family}) ran {len(calls)} blocks where "
                f"{len(self._blocks)} were expected, or in another order, so its blocks cannot be replayed."
            )
        values = [value for call, _, _ in calls for value in (*call.args, *call.kwargs.values())]
        if any(isinstance(value, Cache) and value.get_seq_length() > 0 for value in values):
            raise ModelError(
                f"The blocks of {model.name} are given keys and values that stand before every text (prefix tuning, or "
                "a cache), and add those of the text to them, so no block can be run a second time; evaluate, extract "
                "and compare run each block once, and a model that was tuned with --method lora or finetune (method=) "
                "can be cut."
            )
        self.calls = tuple(call for call, _, _ in calls)
        self.states = tuple(self._swap(s) for s in (calls[0][1], *(output for _, _, output in calls)))
        self.entered = tuple(self._swap(state) for _, state, _ in calls)

    @property
    def depth(self) -> int:
        return len(self.calls)

    def run(self, state: Tensor, first: int, last: int | None = None) -> Tensor:
        """Blocks first..last (1..L, inclusive; last = first if not given) on a state (batch, time, width)."""
        last = first if last is None else last
        if not (first >= 1 and last <= self.depth):
            raise InputError(f"Blocks {first}..{last} were asked for; this model has blocks 1..{self.depth}.")
        for call in self.calls[first - 1 : last]:
            state = self.run_call(call, state)
        return state

    def run_call(self, call: Call, state: Tensor) -> Tensor:
        """One recorded call on a state (batch, time, width)."""
        return self._swap(call.run(self._swap(state)))

    def without(self, first: int, last: int) -> Tensor:
        """The state after the last block when blocks first..last (inclusive) are left out."""
        state = self.states[first - 1]
        return self.run(state, last + 1, self.depth) if last < self.depth else state

    def finish(self, state: Tensor) -> Any:
        """The model's output if its last block had given this state: final norm, pooler and head, as they are."""
        raw = self._swap(state)
        with ExitStack() as stack:
            stack.enter_context(caches_off(self._network))
            for call in {id(call.module): call for call in self.calls}.values():
                stack.enter_context(answering(call, raw))
            return self._network(**self._inputs)

    def _swap(self, state: Tensor) -> Tensor:
        return state.transpose(0, 1) if self._time_first else state


def state_of(output: Any) -> Tensor:
    """Return the state in a block's output: the output itself, or its first part."""
    return output if isinstance(output, Tensor) else output[0]


def entering(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Tensor:
    """Return the state in a block's arguments."""
    return args[0] if args else kwargs[_STATE]


class Uncached:
    """A base for networks that have no caches, as those of transformers may have."""


@contextmanager
def caches_off(network: Any) -> Iterator[None]:
    """Turn key-value caches and memories off while the block runs.

    With a recorded cache a block would give the right answer only for the state that it was recorded with.
    """
    config = None if isinstance(network, Uncached) else network.config
    fields = {name: getattr(config, name) for name in ("use_cache", "use_mems_eval") if hasattr(config, name)}
    try:
        for name in fields:
            setattr(config, name, False)
        yield
    finally:
        for name, value in fields.items():
            setattr(config, name, value)


def _recorder(calls: list[tuple[Call, Tensor, Tensor]]) -> Callable[..., None]:
    """Return a forward hook that appends each call with the states that enter and leave."""

    def record(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> None:
        state = entering(args, kwargs)
        rest = {name: value for name, value in kwargs.items() if args or name != _STATE}
        calls.append((Call(module, args[1:], rest, bool(args), wrap(output, None)), state, state_of(output)))

    return record


def wrap(output: Any, state: Tensor | None) -> Any:
    """Return the same container as a block's output, with another state in it."""
    if isinstance(output, (tuple, list)):
        return type(output)([state, *output[1:]])
    return state


def answering(call: Call, state: Tensor) -> AbstractContextManager[None]:
    """Make a block answer with `state` instead of running, in the container that it uses."""
    return answering_with(call.module, wrap(call.output, state))


@contextmanager
def answering_with(module: nn.Module, answer: Any) -> Iterator[None]:
    """Make a module return `answer` instead of running, while the block runs."""
    before = vars(module).get("forward")  # a network that is spread over devices has one on each module
    module.forward = lambda *_, **__: answer
    try:
        yield
    finally:
        if before is None:
            del module.forward
        else:
            module.forward = before


def same(a: Any, b: Any) -> bool:
    """Return whether two recorded arguments are equal, through tuples, lists and dicts."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.shape == b.shape and a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, (tuple, list)) and isinstance(b, (tuple, list)):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    return type(a) is type(b) and (a is b or a == b)
