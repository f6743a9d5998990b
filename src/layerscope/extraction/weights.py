"""One forward that shows attention weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from layerscope.errors import ModelError
from layerscope.extraction.forward import Runner
from layerscope.extraction.items import Item, Items
from layerscope.models import Model
from layerscope.models.anatomy import evaluating
from layerscope.models.asking import is_causal
from layerscope.models.checkpoints import quiet
from layerscope.models.replay import caches_off
from layerscope.models.selfcheck import of_base, probe_inputs


def forward(runner: Runner, batch: dict[str, Tensor] | Items | Sequence[Item]) -> tuple[Tensor, ...]:
    """Per block (texts, attention heads, time, time) of some texts, padding included; the model must be `eager`.

    `batch` is the inputs on the model's device, or the items that they are made of.
    """
    with runner.ready():
        return _shown(runner.model, batch if isinstance(batch, dict) else runner.inputs(batch))


def _shown(model: Model, inputs: dict[str, Tensor]) -> tuple[Tensor, ...]:
    result = model.network.base_model(**inputs, output_attentions=True)
    weights = getattr(result, "attentions", None) or ()
    texts, time = inputs["input_ids"].shape
    expected = (texts, attention_heads(model), time, time)
    if len(weights) != model.depth or any(w is None or w.shape != expected for w in weights):
        raise _no_weights(model)
    return tuple(weights)


def _no_weights(model: Model, reason: str = "") -> ModelError:
    return ModelError(
        f"{model.name} ({model.anatomy.family}) does not give attention weights of its {model.depth} blocks"
        f"{reason}; compare its states instead, or another family's attention."
    )


def attention_heads(model: Model) -> int:
    """How many attention heads a block has."""
    heads = getattr(model.network.config, "num_attention_heads", None)
    if not isinstance(heads, int):
        raise _no_weights(model, ": its config has no number of attention heads")
    return heads


@contextmanager
def eager(model: Model) -> Iterator[None]:
    """Plain attention, the only one that shows its weights, until the block ends; that it does is checked."""
    network = model.network
    before = network.config._attn_implementation
    if before != "eager":
        with quiet():  # that it did nothing is checked and said in a sentence
            network.set_attn_implementation("eager")
    try:
        _check(model)
        yield
    finally:
        if before != "eager":
            network.set_attn_implementation(before)


def _check(model: Model) -> None:
    """Raise unless the weights that are shown can be those that are used: rows of one, of real tokens, none ahead."""
    network = model.network
    if network.config._attn_implementation != "eager":
        raise ModelError(
            f"The attention of {model.name} ({model.anatomy.family}) cannot be switched to one that shows its weights; "
            f'open it with transformers and attn_implementation="eager", and give that network.'
        )
    inputs = probe_inputs(of_base(model), padded=True)
    with torch.inference_mode(), evaluating(network), caches_off(network):
        try:
            weights = torch.stack(_shown(model, inputs)).float()  # (blocks, rows, heads, time, time)
        except ModelError:
            raise
        except Exception as error:  # a family without attention fails in its own way
            raise _no_weights(model, f" ({type(error).__name__})") from error
    real = inputs["attention_mask"].bool()
    rows = weights.transpose(2, 3)[:, real]  # (blocks, real tokens, heads, time)
    tolerance = 1e-3 if network.dtype in (torch.float32, torch.float64) else 3e-2
    seen = real[:, None, :].expand(-1, real.shape[1], -1)[real]  # (real tokens, time): what is not padding
    if not bool(((rows.sum(dim=-1) - 1).abs() < tolerance).all()):
        raise _no_weights(model, ": the rows of what it shows do not sum to one")
    if bool((rows * ~seen[:, None, :]).abs().max() > tolerance):
        raise _no_weights(model, ": what it shows attends to padding")
    if is_causal(model) and bool(weights.triu(1).transpose(2, 3)[:, real].abs().max() > tolerance):
        raise _no_weights(model, ": it never looks ahead, and what it shows does")
