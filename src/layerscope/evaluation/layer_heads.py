"""The family's own head on every layer, all trained side by side on stored summary-token states."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from layerscope.data.resampling import folds
from layerscope.errors import InputError, ModelError
from layerscope.models import Model, Replay
from layerscope.models.anatomy import evaluating, head_modules
from layerscope.models.replay import answering
from layerscope.models.selfcheck import close, primary, probe_inputs
from layerscope.progress import progress

Score = Callable[[np.ndarray], float]  # of (n, outputs) logits
_PARTS = 10  # of the training texts, one of which chooses epochs


class LayerHeads:
    """One copy of the head a layer: parameters stacked, one forward for all.

    A head reads the summary token alone, so a text is one state (width,) here, and the network's own code after the
    last block (final norm, pooler, head) runs on sequences of that one token. That it may is checked on the model.
    """

    def __init__(self, model: Model, layers: Sequence[int]) -> None:
        self.model, self.layers = model, list(layers)
        self._check()
        names = tuple(f"{path}." for path in head_modules(model.network, model.anatomy))
        own = {k: p.detach() for k, p in model.network.named_parameters() if k.startswith(names)}
        self.parameters = {k: p.expand(len(self.layers), *p.shape).clone() for k, p in own.items()}

    def _check(self) -> None:
        model = self.model
        inputs = probe_inputs(model, rows=1)
        with torch.no_grad(), evaluating(model.network):
            replay = Replay(model, inputs)
            place = 0 if model.anatomy.summary == "first" else -1
            expected = primary(replay.result).reshape(1, -1)
            # One call for each block module says how it wraps its state.
            self._calls = list({id(call.module): call for call in replay.calls}.values())
            got = self._forward(replay.states[-1][:, place])
        if not close(got, expected):
            raise ModelError(
                f"The head of {model.name} ({model.anatomy.family}) reads more than the summary token, so heads cannot "
                "be trained on stored summary tokens; tune with the strategy head-only instead."
            )

    def _forward(self, states: Tensor, parameters: dict[str, Tensor] | None = None) -> Tensor:
        """(texts, width) -> (texts, outputs) through everything after the last block."""
        network, model = self.model.network, self.model
        token = next(i for i in range(3) if i != model.pad_token)
        ids = torch.full((len(states), 1), token, device=states.device)
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if model.multiple_choice:
            inputs = {k: v[:, None] for k, v in inputs.items()}
        sequence = states[None] if model.anatomy.time_first else states[:, None]
        with ExitStack() as stack:
            for call in self._calls:
                stack.enter_context(answering(call, sequence.to(network.dtype)))
            return primary(functional_call(network, parameters or {}, (), inputs)).reshape(len(states), -1)

    def logits(self, states: Tensor) -> Tensor:
        """(layers, texts, width) -> (layers, texts, outputs)."""
        return torch.vmap(self._one, randomness="different")(self.parameters, states)

    def _one(self, parameters: dict[str, Tensor], states: Tensor) -> Tensor:
        return self._forward(states, parameters)

    def fit(
        self,
        train: Tensor,
        labels: np.ndarray,
        choosing: Tensor,
        score: Score,
        *,
        learning_rate: float,
        epochs: int,
        batch: int,
        seed: int = 0,
        groups: tuple[int, int] = (1, 1),
        title: str = "heads",
    ) -> np.ndarray:
        """Train on (layers, rows, width), and keep the epoch of every layer that scores best on other rows.

        The rows that choose the epoch must be neither learned from nor scored later: the best of many epochs is too
        good on them (`held_out` draws them). `groups` are how many rows (choices) make up a text in training and in
        choosing. Gives the scores on the rows that choose after every epoch, (epochs, layers).
        """
        parameters = {k: p.requires_grad_(True) for k, p in self.parameters.items()}
        optimizer = torch.optim.AdamW(list(parameters.values()), learning_rate, weight_decay=0.0)
        texts = train.shape[1] // groups[0]
        steps = epochs * -(-texts // batch)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, 1 - step / max(steps, 1)))
        target = torch.as_tensor(labels, device=train.device)
        generator = torch.Generator().manual_seed(seed)
        history, best = [], {k: p.detach().clone() for k, p in parameters.items()}
        top = np.full(len(self.layers), -np.inf)
        devices = [train.device] if train.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices), progress(title, steps, "steps") as advance:
            torch.manual_seed(seed)
            for _ in range(epochs):
                self._mode(True)
                for chosen in torch.randperm(texts, generator=generator).split(batch):
                    rows = (chosen[:, None] * groups[0] + torch.arange(groups[0])).flatten()
                    logits = self.logits(train[:, rows.to(train.device)])
                    loss = _loss(logits, target[chosen.to(target.device)], groups[0])
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    schedule.step()
                    advance(1)
                scores_now = self.scores(choosing, score, groups[1])
                history.append(scores_now)
                # As long as no epoch has a score, the latest is kept.
                first = np.isneginf(top)
                better = torch.from_numpy((np.nan_to_num(scores_now, nan=-np.inf) > top) | first).to(train.device)
                top = np.fmax(top, scores_now)
                for k, p in parameters.items():
                    best[k] = torch.where(better.view(-1, *[1] * (p.ndim - 1)), p.detach(), best[k])
        self.parameters = best
        return np.stack(history)

    def scores(self, states: Tensor, score: Score, group: int = 1) -> np.ndarray:
        """The metric of every layer's head on (layers, rows, width)."""
        return np.asarray([score(part) for part in self.outputs(states, group)])

    def outputs(self, states: Tensor, group: int = 1) -> np.ndarray:
        """(layers, texts, outputs) what every layer's head answers to (layers, rows, width)."""
        self._mode(False)
        with torch.no_grad():
            logits = torch.cat([self.logits(part) for part in states.split(2048 * group, dim=1)], dim=1)
        values = logits.float().cpu().numpy()
        if self.model.multiple_choice:
            values = values.reshape(len(values), -1, group)
        return values

    def _mode(self, training: bool) -> None:
        """Dropout in the head only."""
        self.model.network.eval()
        if training:
            for path in head_modules(self.model.network, self.model.anatomy):
                self.model.network.get_submodule(path).train()
            for name, child in self.model.network.named_children():
                if not any(True for _ in child.parameters()) and name != self.model.network.base_model_prefix:
                    child.train()  # the dropout that stands beside the head


def held_out(texts: np.ndarray, labels: np.ndarray, seed: int = 0) -> np.ndarray:
    """True for the rows of a tenth of the training texts, on which epochs are chosen: they are not learned from."""
    if len(np.unique(texts)) < 2:
        raise InputError(
            "Heads learn from some training texts and choose their epoch on others; at least 2 are needed."
        )
    classes = None if labels.dtype.kind == "f" else labels
    return folds(texts, _PARTS, seed=seed, labels=classes) == 0


def _loss(logits: Tensor, labels: Tensor, group: int) -> Tensor:
    """The sum over layers of the mean loss of their batches, so that every layer learns as if alone."""
    layers = len(logits)
    if group > 1 or (logits.shape[-1] == 1 and not labels.is_floating_point()):
        logits = logits.reshape(layers, -1, group)
    if labels.is_floating_point():
        return (logits.squeeze(-1).float() - labels.float()).pow(2).mean(dim=1).sum()
    flat = logits.float().flatten(0, 1)
    each = torch.nn.functional.cross_entropy(flat, labels.repeat(layers), reduction="none")
    return each.view(layers, -1).mean(dim=1).sum()
