"""The base class of the methods of tuning, and what they share."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from layerscope.drawing.captions import listed
from layerscope.errors import InputError, ModelError, choose, log, whole
from layerscope.models import Model, load, sources
from layerscope.models.architecture import head_modules
from layerscope.registry import METHODS
from layerscope.tuning.strategy import Strategy

CHECKPOINT, ADAPTER = sources.TUNED, sources.ADAPTER  # folders in which a training leaves its weights


class Method(ABC):
    """A way to train the blocks of a strategy. The class attributes say all that others need to know of it.

    A method is a class in the file of its name in `methods/`. It freezes and adds what it wants in `_prepare`, and
    writes what is needed to open the result again in `save`.
    """

    name: ClassVar[str]
    size_is: ClassVar[str] = ""  # what its size means, such as "rank of LoRA"; empty where it has none
    default_size: ClassVar[int | None] = None
    standard: ClassVar[bool] = True  # whether a standard checkpoint is among what it saves
    freezes_below: ClassVar[bool] = True  # whether blocks below the strategy's answer as before, and can run once
    stands_for_network: ClassVar[bool] = False  # whether what `apply` gives is called in the network's place
    adds_float32: ClassVar[bool] = False  # whether what it adds to blocks is float32, whatever their float type is
    paper_rates: ClassVar[str] = "adapter"  # which of Xie et al.'s sets of learning rates it takes

    def __init__(self, size: int | None = None) -> None:
        if size is not None and self.default_size is None:
            others = [name for name in METHODS if METHODS[name].default_size is not None]
            raise InputError(f"size is {size}, and {self.name} has none; it belongs to {listed(others)}.")
        if size is not None and (not whole(size) or size < 1):
            raise InputError(f"size is {size}; the {self.size_is} must be at least 1, and a whole number.")
        self.size = self.default_size if size is None else int(size)

    def spec(self) -> dict[str, Any]:
        """What decides it, for keys of the store."""
        return {"name": self.name, "size": self.size}

    def check(self, model: Model, strategy: Strategy) -> None:
        """Raise ModelError or InputError where the method cannot be used with a strategy on this model."""
        architecture, blocks = model.architecture, strategy.blocks
        if architecture.unpadded:
            raise ModelError(
                f"The states of {model.name} ({architecture.family}) change with padding, and training pads the texts "
                "of a batch to one length: what is trained would answer unlike what is evaluated. Tune another family."
            )
        if architecture.shared and self.is_partial(strategy):
            raise ModelError(
                f"{model.name} ({architecture.family}) runs one block {model.depth} times: blocks "
                f"{blocks[0]}..{blocks[-1]} cannot be tuned without the others. Use full, (1, k, k) or head-only."
            )

    @staticmethod
    def is_partial(strategy: Strategy) -> bool:
        """Return whether a strategy tunes some of the blocks below its head, but not all."""
        return bool(strategy.blocks) and strategy.blocks != tuple(range(1, int(strategy.head) + 1))

    def needs_blocks(self, strategy: Strategy) -> None:
        """Raise InputError where a strategy tunes no block."""
        if not strategy.blocks:
            raise InputError(f"The strategy {strategy} tunes no block, so there is nothing for {self.name} to sit in.")

    def apply(self, model: Model, strategy: Strategy, embeddings: bool, seed: int) -> nn.Module:
        """Freeze what is not trained and add what the method adds; gives the module to train.

        Args:
            model: A classifier for the task, cut at the strategy's head. It is changed in place.
            strategy: The strategy in numbers.
            embeddings: Whether the strategy tunes the embeddings, which depends on the depth before the cut.
            seed: Decides what new parameters start as.

        Returns:
            The network, or the module around it that is trained in its place.
        """
        self.check(model, strategy)
        model.network.requires_grad_(False)
        return self._prepare(model, strategy, embeddings, seed)

    @abstractmethod
    def _prepare(self, model: Model, strategy: Strategy, embeddings: bool, seed: int) -> nn.Module:
        """The same for a network whose parameters are all frozen."""

    @abstractmethod
    def save(self, tuned: Model, trained: Any, folder: Path, strategy: Strategy) -> None:
        """Write the result into `CHECKPOINT` or `ADAPTER` (or both) under a folder.

        `tuned` is the model that `apply` changed, and `trained` the module that it gave.
        """

    def plain(self, tuned: Model, trained: Any) -> Model:
        """Return the trained model, which answers as a plain network; `tuned` and `trained` are those of `save`."""
        return tuned

    def reopen(self, base: Model, folder: Path) -> Model:
        """Return what `save` wrote, as a model.

        `base` is the model that was tuned. A method that saves no standard checkpoint gets it with the task's head and
        cut at the strategy's, as it was before `apply`, and may change it.
        """
        return load(str(folder / CHECKPOINT), device=str(base.device), dtype=base.network.dtype)


def method_of(name: str | Method, size: int | None = None) -> Method:
    """Return a method by its name, with its size or the usual one."""
    if isinstance(name, Method):
        return name
    return METHODS[choose("method", name, METHODS)](size)


def possible(
    model: Model, strategies: Sequence[str | Strategy], best: int | None, method: Method, level: int = logging.WARNING
) -> dict[str, Strategy]:
    """Return strategies in numbers, by their texts, without those that a model or a method cannot have."""
    resolved_by_text = {}
    for text in strategies:
        asked = Strategy.parse(text)
        try:
            resolved = asked.resolve(model.depth, best)
            method.check(model, resolved)
        except InputError as error:
            log.log(level, "%s with %s is left out: %s", text, method.name, error)
            continue
        resolved_by_text[str(text)] = resolved
    return resolved_by_text


def head_parameters(model: Model) -> list[nn.Parameter]:
    """Return the parameters of the head; a bare encoder has none, whatever stands beside its blocks."""
    network = model.network
    if not model.has_head:
        return []
    return [p for path in head_modules(network, model.architecture) for p in network.get_submodule(path).parameters()]


def unfreeze(parameters: list[nn.Parameter]) -> None:
    """Let these parameters be trained."""
    for parameter in parameters:
        parameter.requires_grad_(True)


def trainable_count(network: nn.Module) -> int:
    """Return how many parameters are trained."""
    return sum(p.numel() for p in network.parameters() if p.requires_grad)
