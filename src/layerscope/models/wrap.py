"""`ls.wrap` makes a model of any torch network that is not one of transformers.

Its states can be read, and nothing else is known of it. Whether its layers can also be run again on other states, as
replay does, is checked on the network itself.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NoReturn

import torch
from torch import Tensor, nn

from layerscope.errors import InputError, ModelError, choose, device_fault, first_line
from layerscope.models.architecture import accepted_inputs, evaluating
from layerscope.models.families import Architecture
from layerscope.models.fingerprint import Scan, tokenizer_fingerprint
from layerscope.models.hooks import Output, Taps, find_modules, watch_layers
from layerscope.models.load import Model
from layerscope.models.replay import Replay, Uncached
from layerscope.models.selfcheck import close, link_fault
from layerscope.models.text_reader import FunctionReader, InputBatch, TextReader
from layerscope.store import NoKey, digest

_TEXT = "The cat sat on the mat ."


def replay_fault(model: WrappedModel) -> str | None:
    """Return why the network's layers are not blocks that can be replayed, or None if they are."""
    taps = model.taps
    if taps.output not in ("tensor", "first") or taps.layout == "batch width time":
        return "its layers do not hand on plain states of (batch, time, width)"
    trusted = replace(model, sound=True)
    turned = " ".join(reversed(_TEXT.split()))  # other tokens, as many of them
    with torch.inference_mode(), evaluating(model.network):
        try:
            return next(_replay_faults(trusted, *(_inputs(model, text) for text in (_TEXT, turned))), None)
        except Exception as error:  # whatever an unknown forward may raise, it is not sound
            if device_fault(error) is not None:
                raise
            return f"they could not be run again ({type(error).__name__}: {first_line(error)})"


def _replay_faults(model: WrappedModel, first: dict[str, Any], other: dict[str, Any]) -> Iterator[str]:
    """Yield what is wrong with replay, tried on the inputs of two texts of one length."""
    replay, second = Replay(model, first), Replay(model, other)
    if replay.states[0].shape != second.states[0].shape:
        yield "two texts of one length could not be made to compare them"
        return
    if fault := link_fault(replay, second, "layer"):
        yield fault
        return
    seen: dict[int, Tensor] = {}
    with watch_layers(model.module, model.taps, 0, seen.__setitem__):
        model.module(**first)
    if not close(seen[0], replay.states[0]):
        yield "layer 0 is not what layer 1 receives"
        return
    again = replay.finish(replay.run(replay.states[0], 1, replay.depth))
    pairs = list(zip(_tensors(again), _tensors(replay.result), strict=True))
    if not pairs or not all(close(a, b) for a, b in pairs):
        yield "its layers run one by one do not give its own output"


def _inputs(model: WrappedModel, text: str) -> dict[str, Any]:
    """Return what the network is called with for a text, by name."""
    batch: InputBatch = input_batch(model, [text])
    bound = inspect.signature(model.module.forward).bind(*batch.args, **batch.kwargs)
    return dict(bound.arguments)


def _tensors(value: Any) -> list[Tensor]:
    """Return every tensor of floats in a network's answer."""
    if isinstance(value, Tensor):
        return [value] if value.is_floating_point() else []
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, (tuple, list)) else ()
    return [tensor for part in parts for tensor in _tensors(part)]


_WORKS = "extract, stream, compare, localization, block_influence, specialty, probe and align"


class WrappedNetwork(nn.Module, Uncached):
    """Any torch module in the place of a transformers network; what only such a network has raises ModelError."""

    def __init__(self, module: nn.Module, name: str) -> None:
        super().__init__()
        self.module = module
        self._name = name
        self.train(module.training)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    @property
    def dtype(self) -> torch.dtype:
        """The float type of its weights."""
        return next((p.dtype for p in self.parameters() if p.is_floating_point()), torch.float32)

    @property
    def config(self) -> NoReturn:
        raise refusal(self._name, self.module, "this needs")

    @property
    def base_model(self) -> NoReturn:
        raise refusal(self._name, self.module, "this needs")


def refusal(name: str, module: nn.Module, what: str, reason: str = "") -> ModelError:
    """Return the error for what needs more than states; `what` begins its reason, as in `cutting needs`."""
    return ModelError(
        f"{name} is a network of its own ({type(module).__name__}), and {what} a transformers network, whose blocks "
        "can be run again one by one on other states and whose head is known; of this one only the states are. What "
        f"works with it: {_WORKS}.{reason}"
    )


@dataclass(eq=False, repr=False)
class WrappedModel(Model):
    """A `Model` of any torch network; `ls.wrap` and, for ELMo, `ls.load` make one."""

    taps: Taps = field(default_factory=lambda: Taps(()))
    widths: tuple[int, ...] = ()  # of layers 0..L
    summary: str | None = None  # the place that stands for a whole text, where there is one
    version: str | None = None  # the user's version of the code of the module and of encode
    sound: bool | None = None  # whether its layers can be run again on other states; None: not checked yet

    @property
    def module(self) -> nn.Module:
        """The torch module itself."""
        return self.network.module

    @property
    def depth(self) -> int:
        return len(self.taps.layers)

    @property
    def width(self) -> int:
        """The width of the widest layer."""
        return max(self.widths)

    @property
    def positions(self) -> None:
        return None

    @property
    def long_above(self) -> None:
        return None

    @property
    def vocabulary(self) -> float:  # type: ignore[override]
        return float("inf")  # its reader knows

    @property
    def token_types(self) -> None:
        return None

    @property
    def pad_token(self) -> int | None:
        return getattr(self.tokenizer, "pad_token_id", None)

    @property
    def device(self) -> torch.device:
        return next((p.device for p in self.network.parameters()), torch.device("cpu"))

    @property
    def head(self) -> str:
        return "none"

    @property
    def embedding(self) -> None:
        return None

    def with_tokenizer(self, tokenizer: Any) -> NoReturn:
        raise InputError(f"{self.name} is a network of its own, which reads texts by itself; leave out the tokenizer.")

    def require_summary(self) -> str:
        if self.summary is None:
            raise InputError(
                f"{self.name} has no place that stands for a whole text, so the pool 'cls' has no meaning for it; take "
                "mean, last, words or tokens (pool=, --pool)."
            )
        return self.summary

    def blocks(self) -> list[Any]:
        """Return the modules of layers 1..L, or raise ModelError where they do not pass the self-check of replay."""
        self.require_blocks("replay", head=False)
        return [self.module.get_submodule(name) for name in self.taps.layers]

    def require_blocks(self, doing: str, *, head: bool = True) -> None:
        if head:
            raise refusal(self.name, self.module, f"{doing} needs")
        if self.sound is None:
            self._fault = replay_fault(self)
            self.sound = self._fault is None
        if not self.sound:
            raise refusal(self.name, self.module, f"{doing} needs", f" It did not pass the self-check: {self._fault}.")

    def spec(self) -> dict[str, Any]:
        """Return what determines its states; raises NoKey where that is code of the user's without a version."""
        if getattr(self.module, "stateful", False):
            raise NoKey(f"{self.name} carries states from batch to batch, so its states depend on what ran before")
        scan = Scan()
        weights = scan.weights(self.network)
        taps = digest(scan.content(asdict(self.taps), "the taps"))
        parts = {"weights": weights, "dtype": str(self.network.dtype), "taps": taps}
        if self.version is not None:
            kind = f"{type(self.module).__module__}.{type(self.module).__qualname__}"
            return {**parts, "code": self.version, "class": kind, "summary": self.summary}
        modules = scan.modules(self.network, None)
        if scan.unknown:
            raise NoKey(
                f"{self.name} has {scan.unknown[0]}, which cannot be fingerprinted (give ls.wrap a version= that you "
                "change with its code)"
            )
        tokenizer = tokenizer_fingerprint(self.tokenizer)
        return {**parts, "modules": modules, "tokenizer": tokenizer, "summary": self.summary}

    def described(self) -> dict[str, Any]:
        size = {"blocks": self.depth, "width": self.width}
        return {
            "name": self.name,
            "class": type(self.module).__name__,
            **size,
            "weights": Scan().weights(self.network),
        }

    def __repr__(self) -> str:
        return f"Model({self.name!r}, {type(self.module).__name__}, layers 0..{self.depth}, width {self.width})"


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
) -> WrappedModel:
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
    names = find_modules(module, layers)
    if embedding is not None:
        (embedding,) = find_modules(module, [embedding])[:1]
    taps = Taps(names, embedding, output, layout, embedding_output, embedding_layout)
    name = name or type(module).__name__
    time_first = layout == "time batch width"
    architecture = Architecture(type(module).__name__, ", ".join(names), unpadded=unpadded, time_first=time_first)
    reader = _reader(encode, module)
    model = WrappedModel(
        WrappedNetwork(module, name), reader, architecture, name, taps, (0,) * (len(names) + 1), summary, version
    )
    return replace(model, widths=_checked_widths(model, list(texts)))


def _reader(encode: Any, module: nn.Module) -> Any:
    """Return what reads texts, a tokenizer or a reader, from the user's `encode`."""
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


def input_batch(model: WrappedModel, texts: Sequence[str]) -> InputBatch:
    """Return the inputs of texts that go together, on the model's device."""
    reader = model.tokenizer
    if isinstance(reader, TextReader):
        return reader.batch([place.ids for place in reader.read(texts, _LONGEST)]).on(model.device)
    batch = reader(list(texts), padding=True, padding_side="right", return_tensors="pt")
    return tokens_batch(model, batch).on(model.device)


def tokens_batch(model: WrappedModel, batch: Mapping[str, Tensor]) -> InputBatch:
    """Return token ids and their mask as inputs, as far as the network takes them by name."""
    accepted = accepted_inputs(model.module)
    return InputBatch(batch["attention_mask"], (), {k: v for k, v in batch.items() if k in accepted})


def run(model: WrappedModel, batch: InputBatch, see: Callable[[int, Tensor], None]) -> None:
    """Run one forward, and call `see(layer, state)` with every layer as (batch, time, width), real places first."""
    order, shape, taps = batch.order, tuple(batch.mask.shape), model.taps

    def in_order(layer: int, state: Tensor) -> None:
        if tuple(state.shape[:2]) != shape:
            layout = taps.embedding_layout if layer == 0 and taps.embedding else taps.layout
            raise ModelError(
                f"{taps.name(layer)} of {model.name} is {tuple(state.shape)} when read as '{layout}', and the mask of "
                f"encode is {shape} (texts, time); say how its dimensions lie (layout=, embedding_layout=), or name "
                "another module."
            )
        see(layer, state if order is None else state.gather(1, order.unsqueeze(-1).expand_as(state)))

    with watch_layers(model.module, taps, shape[1], in_order):
        model.module(*batch.args, **batch.kwargs)


def _checked_widths(model: WrappedModel, texts: list[str]) -> tuple[int, ...]:
    """Return the widths of layers 0..L, or raise ModelError with what keeps the network's states from being read."""
    if len(texts) < 2 or len(set(texts)) < len(texts):
        raise InputError("texts (to check the network on) must be at least two different ones.")
    if model.architecture.unpadded:
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
            for fault in _batching_faults(model, text, [state[k, : lengths[k]] for state in together]):
                raise ModelError(fault)
    return tuple(state.shape[-1] for state in together)


def _batching_faults(model: WrappedModel, text: str, states: list[Tensor]) -> Iterator[str]:
    """Yield how the states of a text that runs by itself differ from `states`, those that it has among others."""
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


def _states(model: WrappedModel, batch: InputBatch) -> list[Tensor]:
    """Return layers 0..L of a batch, or raise ModelError where a layer is missing or not finite."""
    seen: dict[int, Tensor] = {}
    try:
        run(model, batch, seen.__setitem__)
    except InputError:
        raise
    except Exception as error:  # whatever an unknown forward may raise
        if device_fault(error) is not None:
            raise
        raise ModelError(
            f"{model.name} cannot be run on what encode gives ({type(error).__name__}: {first_line(error)})."
        ) from error
    if missing := [model.taps.name(k) for k in range(model.depth + 1) if k not in seen]:
        raise ModelError(f"{missing[0]} of {model.name} does not run in a forward, so it has no states.")
    for layer, state in seen.items():
        if not bool(torch.isfinite(state).all()):
            raise ModelError(f"{model.taps.name(layer)} of {model.name} is not finite on a few plain texts.")
    return [seen[k] for k in range(model.depth + 1)]
