"""A network under training with a frozen prefix: no dropout there, and no forward where its output is known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.models import Model, Replay
from layerscope.models.anatomy import block_modules, evaluating
from layerscope.models.replay import entering, wrap
from layerscope.models.selfcheck import probe_inputs
from layerscope.tuning.kept_states import KeptStates

CHOICES = "real_choices"  # the input that says which choices of a batch are real, (texts, choices)
INDEX = "prefix_index"  # instead of the states, their rows in a table on the device, (texts, time)
ROWS = "prefix_rows"  # or the numbers of the rows, whose states are kept when they are first made
STATES = "prefix_states"  # the input that holds layer `frozen` of a batch, (texts, time, width)


class Prefixed(nn.Module):
    """The network; blocks 1..frozen are not run where a batch brings their output along.

    The network's own forward prepares masks, positions and whatever else its blocks need; the frozen blocks answer
    with what they are given, the last of them with the cached states. Frozen modules stay in evaluation mode, so their
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
        self.kept: KeptStates | None = None  # or those that the training itself makes as it goes
        self._mode: bool | None = None  # training or not, once it has been said
        self._all: list[nn.Parameter] = []
        self._containers = self._outputs(model) if frozen else []
        self._blocks = block_modules(model.network.base_model, model.anatomy)[:frozen]
        self._quiet: list[nn.Module] = [] if model.anatomy.shared else list(self._blocks)
        if not trains_embeddings:
            self._quiet += [m for m in self.network.modules() if isinstance(m, nn.Embedding)]
            self._quiet += _embedding_parts(model)

    @staticmethod
    def _outputs(model: Model) -> list[Any]:
        """How every block wraps the state that it returns, with None in its place."""
        with torch.no_grad(), evaluating(model.network):
            return [call.output for call in Replay(model, probe_inputs(model)).calls]

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """What is trained, for the checkpoints of an interrupted training; the rest is the model as it was opened."""
        trained = {name for name, parameter in self.named_parameters() if parameter.requires_grad}
        return {name: value for name, value in super().state_dict(*args, **kwargs).items() if name in trained}

    def train(self, mode: bool = True) -> Prefixed:
        if self._mode == mode == self.network.training:  # the Trainer says it again in every step
            return self
        super().train(mode)
        for module in self._quiet:
            module.eval()
        self._mode = mode
        return self

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """All parameters; a training asks for them twice in every step, and they stay the same."""
        if not recurse:
            return super().parameters(recurse=False)
        self._all = self._all or list(super().parameters())
        return iter(self._all)

    def forward(self, **inputs: Any) -> dict[str, Tensor]:
        real, labels = (inputs.pop(name, None) for name in (CHOICES, "labels"))
        with self.given(inputs):
            logits = self.network(**inputs).logits
        if real is not None:
            logits = logits.masked_fill(~real, -torch.inf)
        answer = {"logits": logits}
        return answer if labels is None else {"loss": _loss(logits, labels), **answer}

    def given(self, inputs: dict[str, Any]) -> AbstractContextManager[None]:
        """The frozen blocks answer with what a batch brings along, if it does; that is taken out of the inputs."""
        states, index, rows = (inputs.pop(name, None) for name in (STATES, INDEX, ROWS))
        if index is not None:
            assert self.table is not None
            states = self.table[index].to(self.network.dtype)
        if rows is not None:
            assert self.kept is not None
            states = self.kept.states(rows, inputs["input_ids"].shape[-1])
            if states is None:  # some of them for the first time
                return self.kept.watching(self._blocks[-1], rows)
        return nullcontext() if states is None else self._answering(states)

    @contextmanager
    def _answering(self, states: Tensor) -> Iterator[None]:
        """The first `frozen` block calls of this forward pass the state through; the last of them gives `states`."""
        time_first = self._model[0].anatomy.time_first
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
    """Cross entropy for classes and choices, squared error for numbers."""
    if labels.is_floating_point():
        return nn.functional.mse_loss(logits.squeeze(-1).float(), labels)
    return nn.functional.cross_entropy(logits.float(), labels)


def _embedding_parts(model: Model) -> list[nn.Module]:
    """Modules beside the blocks that make layer 0: embeddings with their norms, projections and dropout."""
    base, head = model.network.base_model, set(model.anatomy.base_head)
    blocks = model.anatomy.blocks.split(".")[0]
    return [child for name, child in base.named_children() if name not in head and name != blocks]
