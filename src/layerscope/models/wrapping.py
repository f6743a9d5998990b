"""`ls.wrap`: any torch network as a model whose layers can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from layerscope.errors import InputError, ModelError, choose, first_line
from layerscope.models.anatomy import Anatomy, accepted_inputs, evaluating
from layerscope.models.own import OwnModel, OwnNetwork
from layerscope.models.readers import FunctionReader, InputBatch, TextReader
from layerscope.models.selfcheck import close
from layerscope.models.taps import Output, Taps, find, listening

_SUMMARIES = ("first", "last")
_PROBES = (
    "The cat sat on the mat .",
    "One",
    "A much longer text than the others has many more words in it , so that the others are padded .",
)
_LONGEST = 4096  # places of a probe


def wrap(
    module: nn.Module,
    *,
    layers: Sequence[str],
    encode: Any,
    embedding: str | None = None,
    name: str | None = None,
    summary: str | None = None,
    output: Output = "tensor",
    layout: str = "batch time width",
    embedding_output: Output = "tensor",
    embedding_layout: str = "batch time width",
    unpadded: bool = False,
    version: str | None = None,
    texts: Sequence[str] = _PROBES,
) -> OwnModel:
    """Make a model of any torch network, for everything that needs no more of a network than its states.

    `extract`, `stream`, `compare`, `localization`, `block_influence`, `specialty`, `probe` and `align` take it.
    `Replay` and `inject`, which run layers again on other states, take it where its layers pass a self-check: each
    receives what the one before gives, and run one by one they give the network's own answer. What needs a known head
    too (cutting, curves, evaluation, tuning) refuses it.

    The network is checked on a few texts: every layer runs once and has one width, padding does not change a row, and
    two runs agree.

    Args:
        module: The network. It is used as it is, in evaluation mode, where it is.
        layers: Names of the modules whose outputs are layers 1..L, in order, as `module.named_modules()` has them. A
            `*` stands for any part of a name between two dots: `["blocks.*"]`.
        encode: A tokenizer of transformers, for a network that takes `input_ids` (and `attention_mask`, if it names
            it); or a function of a list of texts that gives a dict: `inputs` (what the network is called with: a
            tensor, a tuple, or a dict of named inputs), `mask` (texts, time; 1 where there is no padding) and, for the
            pool `words`, `words` (texts, time; the number of the word at each place, counted from 0, and -1 where there
            is none). It may add `special` (texts, time; 1 for marks that the pool `mean` leaves out) and `truncated`
            (texts; whether a text was cut off). A text is a str, and with the pool `words` a list of words. A function
            that takes `max_length` is given it and must cut texts there.
        embedding: The name of the module whose output is layer 0; if not given, layer 0 is what enters the first of
            `layers`.
        name: What it is called in results; the name of its class if not given.
        summary: The place that stands for a whole text, `first` or `last`, for the pool `cls`; without it that pool is
            refused.
        output: What the modules in `layers` give: a `tensor`, a tuple whose `first` entry is the state (as `nn.LSTM`
            does), a `packed` sequence (alone or first in a tuple), or a function that takes the output to the state.
        layout: The dimensions of a state: `batch time width`, `time batch width` or `batch width time`.
        embedding_output: The same as `output`, for `embedding`.
        embedding_layout: The same as `layout`, for `embedding`.
        unpadded: Let only texts of one length go through it together, for a network whose states change with padding.
        version: What you call the code of `module` and `encode`. Weights are told apart by themselves, but nobody can
            tell whether a function still does what it did: with a version, which you change with the code, results are
            kept in the store, and without one they are not.
        texts: Texts to check it on, of different lengths.

    Returns:
        A `Model`.

    Example:
        >>> import torch, layerscope as ls
        >>> class Tagger(torch.nn.Module):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.embed = torch.nn.Embedding(128, 8)
        ...         self.blocks = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(2))
        ...     def forward(self, ids):
        ...         x = self.embed(ids)
        ...         for block in self.blocks:
        ...             x = torch.tanh(block(x))
        ...         return x
        >>> def letters(texts, max_length):
        ...     rows = [torch.tensor([min(ord(c), 127) for c in text[:max_length]]) for text in texts]
        ...     ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
        ...     return {"inputs": ids, "mask": ids > 0}
        >>> model = ls.wrap(Tagger(), layers=["blocks.*"], embedding="embed", encode=letters, name="letters")
        >>> reps = ls.extract(model, "pydocs", pool="mean", limit=5, max_length=16)
        >>> reps.layers, tuple(reps[2].shape)
        ([0, 1, 2], (5, 8))
    """
    if not isinstance(module, nn.Module):
        raise InputError(f"A torch.nn.Module is needed; a {type(module).__name__} was given.")
    if summary is not None:
        choose("summary", summary, _SUMMARIES)
    names = find(module, layers)
    if embedding is not None:
        (embedding,) = find(module, [embedding])[:1]
    taps = Taps(names, embedding, output, layout, embedding_output, embedding_layout)
    name = name or type(module).__name__
    time_first = layout == "time batch width"
    anatomy = Anatomy(type(module).__name__, ", ".join(names), unpadded=unpadded, time_first=time_first)
    reader = _reader(encode, module)
    model = OwnModel(OwnNetwork(module, name), reader, anatomy, name, taps, (0,) * (len(names) + 1), summary, version)
    return replace(model, widths=_checked(model, list(texts)))


def _reader(encode: Any, module: nn.Module) -> Any:
    """What reads texts: a tokenizer, a reader, or a function."""
    from transformers import PreTrainedTokenizerBase

    if isinstance(encode, PreTrainedTokenizerBase):
        accepted = accepted_inputs(module)
        if "input_ids" not in accepted:
            raise InputError(
                f"encode is a tokenizer, and the forward of {type(module).__name__} has no argument input_ids (it has "
                f"{', '.join(sorted(accepted - {'self'}))}); give a function that names its inputs."
            )
        return encode
    if isinstance(encode, TextReader):
        return encode
    if not callable(encode):
        raise InputError(f"encode is a {type(encode).__name__}; a tokenizer or a function of texts is needed.")
    return FunctionReader(encode)


def input_batch(model: OwnModel, texts: Sequence[str]) -> InputBatch:
    """The inputs of texts that go together."""
    reader = model.tokenizer
    if isinstance(reader, TextReader):
        return reader.batch([place.ids for place in reader.read(texts, _LONGEST)]).on(model.device)
    batch = reader(list(texts), padding=True, padding_side="right", return_tensors="pt")
    return tokens_batch(model, batch).on(model.device)


def tokens_batch(model: OwnModel, batch: Mapping[str, Tensor]) -> InputBatch:
    """Token ids and their mask, as far as the network takes them by name."""
    accepted = accepted_inputs(model.module)
    return InputBatch(batch["attention_mask"], (), {k: v for k, v in batch.items() if k in accepted})


def run(model: OwnModel, batch: InputBatch, see: Callable[[int, Tensor], None]) -> None:
    """One forward, of which `see(layer, state)` is told every layer as (batch, time, width), real places first."""
    order, shape = batch.order, tuple(batch.mask.shape)

    def told(layer: int, state: Tensor) -> None:
        if tuple(state.shape[:2]) != shape:
            raise ModelError(_wrong_shape(model, layer, state, shape))
        see(layer, state if order is None else state.gather(1, order.unsqueeze(-1).expand_as(state)))

    with listening(model.module, model.taps, shape[1], told):
        model.module(*batch.args, **batch.kwargs)


def _wrong_shape(model: OwnModel, layer: int, state: Tensor, shape: tuple[int, ...]) -> str:
    said = model.taps.embedding_layout if layer == 0 and model.taps.embedding else model.taps.layout
    return (
        f"{model.taps.name(layer)} of {model.name} is {tuple(state.shape)} when read as '{said}', and the mask of "
        f"encode is {shape} (texts, time); say how its dimensions lie (layout=, embedding_layout=), or name another "
        "module."
    )


def _checked(model: OwnModel, texts: list[str]) -> tuple[int, ...]:
    """The widths of layers 0..L; or the error that says what keeps the network from being read."""
    if len(texts) < 2 or len(set(texts)) < len(texts):
        raise InputError("texts (to check the network on) must be at least two different ones.")
    if model.anatomy.unpadded:
        texts = [texts[0], texts[0]]
    with torch.inference_mode(), evaluating(model.network):
        batch = input_batch(model, texts)
        together = _states(model, batch)
        lengths = batch.mask.bool().sum(dim=1).tolist()
        for layer, again in enumerate(_states(model, batch)):
            if not close(*(torch.cat([s[k, :n] for k, n in enumerate(lengths)]) for s in (again, together[layer]))):
                raise ModelError(
                    f"Two forwards over the same texts give different states of {model.taps.name(layer)} of "
                    f"{model.name}: something in it is random, or it remembers what it has seen."
                )
        for k, text in enumerate(texts):
            for fault in _alone(model, text, [state[k, : lengths[k]] for state in together]):
                raise ModelError(fault)
    return tuple(state.shape[-1] for state in together)


def _alone(model: OwnModel, text: str, states: list[Tensor]) -> Iterator[str]:
    """What is different where a text runs by itself."""
    batch = input_batch(model, [text])
    count = int(batch.mask.bool().sum())
    if count != len(states[0]):
        yield (
            f"encode gives the text {text[:40]!r} {count} places by itself and {len(states[0])} among others; the mask "
            "must be 1 for a text's own places and 0 for padding."
        )
        return
    for layer, state in enumerate(_states(model, batch)):
        if state.shape[-1] != states[layer].shape[-1]:
            yield f"{model.taps.name(layer)} of {model.name} has another width for another batch."
        elif not close(states[layer], state[0, :count]):
            yield (
                f"Other texts of a batch, or padding, change the states of {model.taps.name(layer)} of {model.name} "
                f"for the text {text[:40]!r}; mask padding in the network, or pass unpadded=True, with which only "
                "texts of one length go through it together."
            )


def _states(model: OwnModel, batch: InputBatch) -> list[Tensor]:
    """Layers 0..L of a batch, all of them."""
    seen: dict[int, Tensor] = {}
    try:
        run(model, batch, seen.__setitem__)
    except InputError:
        raise
    except Exception as error:  # whatever an unknown forward may raise
        raise ModelError(
            f"{model.name} cannot be run on what encode gives ({type(error).__name__}: {first_line(error)})."
        ) from error
    if missing := [model.taps.name(k) for k in range(model.depth + 1) if k not in seen]:
        raise ModelError(f"{missing[0]} of {model.name} does not run in a forward, so it has no states.")
    for layer, state in seen.items():
        if not bool(torch.isfinite(state).all()):
            raise ModelError(f"{model.taps.name(layer)} of {model.name} is not finite on a few plain texts.")
    return [seen[k] for k in range(model.depth + 1)]
