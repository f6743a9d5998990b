"""A copy of a model as a classifier for a task, with a head of the family's own kind."""

from __future__ import annotations

import copy
from typing import Any

import torch

from layerscope.data import Task
from layerscope.errors import InputError, ModelError
from layerscope.evaluation.outputs import outputs_of
from layerscope.models import Model, load
from layerscope.models.anatomy import head_modules
from layerscope.models.lineage import inherit
from layerscope.models.load import carry


def classifier_of(model: Model, task: Task, seed: int = 0, new_head: bool = False) -> Model:
    """A copy whose head has the task's outputs: the model's own head where it fits, else a new one (from the seed).

    A head that has the task's classes in another order fits, too: its outputs are put into the task's.
    """
    if task.kind in ("text", "tags"):
        what = "running text" if task.kind == "text" else "tags"
        raise InputError(
            f"{task.name} has {what}, and heads are trained for classes, numbers and choices; name the columns of one "
            "of those (label=, choices=)."
        )
    own = _with_own_head(model, task) if model.head in ("classes", "choices") and not new_head else None
    network = _with_new_head(model, task, seed) if own is None else own
    # So that the outputs of its own head say what they mean.
    if own is not None and task.label_names is not None and task.kind != "choice":
        network.config.id2label = dict(enumerate(task.label_names))
        network.config.label2id = {name: i for i, name in enumerate(task.label_names)}
    _pad_token(network, model.tokenizer)
    carry(network, model.tokenizer)
    classifier = load(network)
    classifier.name = model.name
    return classifier


def _with_own_head(model: Model, task: Task) -> Any:
    """A copy of the network with its outputs in the order of the task's classes; None where its head does not fit."""
    try:
        outputs = outputs_of(model, task)
    except InputError:
        return None
    network = copy.deepcopy(model.network)
    if list(outputs) == sorted(outputs):
        return network
    heads = [network.get_submodule(path) for path in head_modules(network, model.anatomy)]
    last = [part for head in heads for part in head.modules() if getattr(part, "out_features", 0) == len(outputs)]
    if len(last) != 1:
        return None
    with torch.no_grad():
        for parameter in last[0].parameters():  # a weight (outputs, width), and perhaps a bias (outputs,)
            parameter.copy_(parameter[torch.from_numpy(outputs).to(parameter.device)])
    return network


def _with_new_head(model: Model, task: Task, seed: int) -> Any:
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
                f"{model.name} ({model.anatomy.family}) has no head for {kind} in transformers."
            ) from error
    network = network.to(model.network.dtype)
    missing, unexpected = network.base_model.load_state_dict(model.network.base_model.state_dict(), strict=False)
    stray = [k for k in (*missing, *unexpected) if k.split(".")[0] not in (*model.anatomy.base_head, "pooler")]
    if stray:
        raise ModelError(
            f"{model.name} cannot become a classifier: {stray[0]} has no place in {type(network).__name__}."
        )
    network.name_or_path = model.network.name_or_path
    inherit(network, model.network)
    return network.eval().to(model.device)


def _pad_token(network: Any, tokenizer: Any) -> None:
    """Decoders come without a padding token; heads that look for the last real token need one."""
    pad = network.config.pad_token_id
    if (pad is None or pad < 0) and tokenizer is not None:
        chosen = next((t for t in (tokenizer.pad_token_id, tokenizer.eos_token_id, 0) if t is not None), 0)
        network.config.pad_token_id = int(chosen)
