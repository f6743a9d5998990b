"""Classifier heads: a copy of a model with a head for a task, and one such head on every layer.

The heads of all layers are of the family's own kind and are trained side by side on stored states of the summary token.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call

from layerscope.data import Task
from layerscope.errors import InputError, ModelError
from layerscope.evaluation.label_order import outputs_of
from layerscope.models import Model, Replay, load
from layerscope.models.architecture import evaluating, head_modules
from layerscope.models.heads import HEADS
from layerscope.models.lineage import inherit
from layerscope.models.load import carry
from layerscope.models.replay import answering
from layerscope.models.selfcheck import close, primary, probe_inputs
from layerscope.progress import progress
from layerscope.resampling import folds


def classifier_of(model: Model, task: Task, seed: int = 0, new_head: bool = False) -> Model:
    """Return a copy whose head has the task's outputs: the model's own head where it fits, else a new one.

    A head with the task's classes in another order fits, too: its outputs are put into the task's order.
    """
    if task.kind in ("text", "tags"):
        what = "running text" if task.kind == "text" else "tags"
        raise InputError(
            f"{task.name} has {what}, and heads are trained for classes, numbers and choices; name the columns of one "
            "of those (label=, choices=)."
        )
    existing = _with_own_head(model, task) if HEADS[model.head].classifier and not new_head else None
    network = _with_new_head(model, task, seed) if existing is None else existing
    # The outputs of the model's own head may have had no names, or other spellings than the task's.
    if existing is not None and task.label_names is not None and task.kind != "choice":
        network.config.id2label = dict(enumerate(task.label_names))
        network.config.label2id = {name: i for i, name in enumerate(task.label_names)}
    # Decoders come without a padding token; heads that look for the last real token need one.
    pad, tokenizer = network.config.pad_token_id, model.tokenizer
    if (pad is None or pad < 0) and tokenizer is not None:
        chosen = next((t for t in (tokenizer.pad_token_id, tokenizer.eos_token_id, 0) if t is not None), 0)
        network.config.pad_token_id = int(chosen)
    carry(network, model.tokenizer)
    classifier = load(network)
    classifier.name = model.name
    return classifier


def _with_own_head(model: Model, task: Task) -> Any:
    """Return a copy of the network with its outputs in the task's order; None where its head does not fit."""
    try:
        outputs = outputs_of(model, task)
    except InputError:
        return None
    network = copy.deepcopy(model.network)
    if list(outputs) == sorted(outputs):
        return network
    heads = [network.get_submodule(path) for path in head_modules(network, model.architecture)]
    last = [part for head in heads for part in head.modules() if getattr(part, "out_features", 0) == len(outputs)]
    if len(last) != 1:
        return None
    with torch.no_grad():
        for parameter in last[0].parameters():  # a weight (outputs, width), and perhaps a bias (outputs,)
            parameter.copy_(parameter[torch.from_numpy(outputs).to(parameter.device)])
    return network


def _with_new_head(model: Model, task: Task, seed: int) -> Any:
    """Return a copy of the network with an untrained head for the task; raise ModelError where the family has none."""
    import transformers

    config = copy.deepcopy(model.network.config)
    choice = task.kind == "choice"
    if not choice:
        names = task.label_names or ("score",)
        config.num_labels = len(names)
        config.id2label = dict(enumerate(names))
        config.label2id = {name: i for i, name in enumerate(names)}
        config.problem_type = "regression" if task.regression else "single_label_classification"
    opener = transformers.AutoModelForMultipleChoice if choice else transformers.AutoModelForSequenceClassification
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            network = opener.from_config(config, trust_remote_code=False)
        except ValueError as error:
            kind = "choices" if choice else "classes"
            raise ModelError(
                f"{model.name} ({model.architecture.family}) has no head for {kind} in transformers."
            ) from error
    network = network.to(model.network.dtype)
    missing, unexpected = network.base_model.load_state_dict(model.network.base_model.state_dict(), strict=False)
    stray = [k for k in (*missing, *unexpected) if k.split(".")[0] not in (*model.architecture.base_head, "pooler")]
    if stray:
        raise ModelError(
            f"{model.name} cannot become a classifier: {stray[0]} has no place in {type(network).__name__}."
        )
    network.name_or_path = model.network.name_or_path
    inherit(network, model.network)
    return network.eval().to(model.device)


Score = Callable[[np.ndarray], float]  # of (n, outputs) logits
_PARTS = 10  # of the training texts, one of which chooses epochs


class LayerHeads:
    """One copy of a model's head for each layer: their parameters are stacked, and one forward runs all of them.

    A head reads the summary token alone, so a text is one state (width,) here, and the network's own code after the
    last block (final norm, pooler, head) runs on sequences of that one token. Whether that gives the model's own
    answers is checked when the heads are made.
    """

    def __init__(self, model: Model, layers: Sequence[int]) -> None:
        self.model, self.layers = model, list(layers)
        self._check()
        names = tuple(f"{path}." for path in head_modules(model.network, model.architecture))
        head = {k: p.detach() for k, p in model.network.named_parameters() if k.startswith(names)}
        self.parameters = {k: p.expand(len(self.layers), *p.shape).clone() for k, p in head.items()}

    def _check(self) -> None:
        """Raise ModelError unless the head gives the model's own answers when it sees the summary token alone."""
        model = self.model
        inputs = probe_inputs(model, rows=1)
        with torch.no_grad(), evaluating(model.network):
            replay = Replay(model, inputs)
            place = 0 if model.architecture.summary == "first" else -1
            expected = primary(replay.result).reshape(1, -1)
            # One call for each block module says how it wraps its state.
            self._calls = list({id(call.module): call for call in replay.calls}.values())
            got = self._forward(replay.states[-1][:, place])
        if not close(got, expected):
            raise ModelError(
                f"The head of {model.name} ({model.architecture.family}) reads more than the summary token, so heads "
                "cannot be trained on stored summary tokens; tune with the strategy head-only instead."
            )

    def _forward(self, states: Tensor, parameters: dict[str, Tensor] | None = None) -> Tensor:
        """Return (texts, outputs) from (texts, width) states, through everything after the last block."""
        network, model = self.model.network, self.model
        token = next(i for i in range(3) if i != model.pad_token)
        ids = torch.full((len(states), 1), token, device=states.device)
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
        if model.multiple_choice:
            inputs = {k: v[:, None] for k, v in inputs.items()}
        sequence = states[None] if model.architecture.time_first else states[:, None]
        with ExitStack() as stack:
            for call in self._calls:
                stack.enter_context(answering(call, sequence.to(network.dtype)))
            return primary(functional_call(network, parameters or {}, (), inputs)).reshape(len(states), -1)

    def logits(self, states: Tensor) -> Tensor:
        """Return (layers, texts, outputs) from (layers, texts, width) states."""

        def forward(parameters: dict[str, Tensor], states: Tensor) -> Tensor:
            return self._forward(states, parameters)

        return torch.vmap(forward, randomness="different")(self.parameters, states)

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
        max_steps: int | None = None,
        warmup: int = 0,
        groups: tuple[int, int] = (1, 1),
        title: str = "heads",
    ) -> np.ndarray:
        """Train on (layers, rows, width) states, and keep for every layer the epoch that scores best on other rows.

        The rows that choose the epoch must be neither learned from nor scored later: the best of many epochs is too
        good on them (`held_out` draws them). `groups` are how many rows (choices) make up a text in training and in
        choosing. `max_steps` takes the place of `epochs`; over the first `warmup` steps the learning rate rises.
        Returns the scores on the rows that choose after every epoch, (epochs, layers).
        """
        parameters = {k: p.requires_grad_(True) for k, p in self.parameters.items()}
        optimizer = torch.optim.AdamW(list(parameters.values()), learning_rate, weight_decay=0.0)
        texts = train.shape[1] // groups[0]
        per_epoch = -(-texts // batch)
        steps = epochs * per_epoch if max_steps is None else max_steps

        def rate(step: int) -> float:
            if step < warmup:
                return (step + 1) / warmup
            return max(0.0, 1 - (step - warmup) / max(steps - warmup, 1))

        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, rate)
        target = torch.as_tensor(labels, device=train.device)
        generator = torch.Generator().manual_seed(seed)
        history, best = [], {k: p.detach().clone() for k, p in parameters.items()}
        top = np.full(len(self.layers), -np.inf)
        devices = [train.device] if train.device.type == "cuda" else []
        with torch.random.fork_rng(devices=devices), progress(title, steps, "steps") as advance:
            torch.manual_seed(seed)
            for done in range(0, steps, per_epoch):
                self._mode(True)
                for chosen in torch.randperm(texts, generator=generator).split(batch)[: steps - done]:
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
        """Return the metric of every layer's head on (layers, rows, width) states."""
        return np.asarray([score(part) for part in self.outputs(states, group)])

    def outputs(self, states: Tensor, group: int = 1) -> np.ndarray:
        """Return (layers, texts, outputs): the answers of every layer's head to (layers, rows, width) states."""
        self._mode(False)
        with torch.no_grad():
            logits = torch.cat([self.logits(part) for part in states.split(2048 * group, dim=1)], dim=1)
        values = logits.float().cpu().numpy()
        if self.model.multiple_choice:
            values = values.reshape(len(values), -1, group)
        return values

    def _mode(self, training: bool) -> None:
        """Put the network into evaluation mode; with `training`, let the dropout of the head alone work."""
        self.model.network.eval()
        if training:
            for path in head_modules(self.model.network, self.model.architecture):
                self.model.network.get_submodule(path).train()
            for name, child in self.model.network.named_children():
                if not any(True for _ in child.parameters()) and name != self.model.network.base_model_prefix:
                    child.train()  # the dropout that stands beside the head


def held_out(texts: np.ndarray, labels: np.ndarray, seed: int = 0) -> np.ndarray:
    """Return a mask of the rows of a tenth of the training texts, which choose epochs and train nothing."""
    if len(np.unique(texts)) < 2:
        raise InputError(
            "Heads learn from some training texts and choose their epoch on others; at least 2 are needed."
        )
    classes = None if labels.dtype.kind == "f" else labels
    return folds(texts, _PARTS, seed=seed, labels=classes) == 0


def _loss(logits: Tensor, labels: Tensor, group: int) -> Tensor:
    """Return the sum over layers of the mean loss of their batches, so that every layer learns as if alone."""
    layers = len(logits)
    if group > 1 or (logits.shape[-1] == 1 and not labels.is_floating_point()):
        logits = logits.reshape(layers, -1, group)
    if labels.is_floating_point():
        return (logits.squeeze(-1).float() - labels.float()).pow(2).mean(dim=1).sum()
    flat = logits.float().flatten(0, 1)
    each = torch.nn.functional.cross_entropy(flat, labels.repeat(layers), reduction="none")
    return each.view(layers, -1).mean(dim=1).sum()
