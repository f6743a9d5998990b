"""A network that is not one of transformers: its states can be read, and nothing else is known of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any, NoReturn

import torch
from torch import nn

from layerscope.errors import InputError, ModelError
from layerscope.models.identity import tokenizer_fingerprint
from layerscope.models.load import Model
from layerscope.models.own_blocks import fault_of
from layerscope.models.replay import Uncached
from layerscope.models.scanning import Scan
from layerscope.models.taps import Taps
from layerscope.store import NoKey, digest

_WORKS = "extract, stream, compare, localization, block_influence, specialty, probe and align"


class OwnNetwork(nn.Module, Uncached):
    """The module as it is, behind a door: whoever looks for what only a transformers network has is told why not."""

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
    """The error for what needs more than states."""
    return ModelError(
        f"{name} is a network of its own ({type(module).__name__}), and {what} a transformers network, whose blocks "
        "can be run again one by one on other states and whose head is known; of this one only the states are. What "
        f"works with it: {_WORKS}.{reason}"
    )


@dataclass(eq=False, repr=False)
class OwnModel(Model):
    """A `Model` of any torch network; `ls.wrap` and, for ELMo, `ls.load` make one."""

    taps: Taps = field(default_factory=lambda: Taps(()))
    widths: tuple[int, ...] = ()  # of layers 0..L
    summary: str | None = None  # the place that stands for a whole text, where there is one
    version: str | None = None  # what its maker calls the code of the module and of encode
    sound: bool | None = None  # whether its layers can be run again on other states; None: not looked at yet

    @property
    def module(self) -> nn.Module:
        """The torch module itself."""
        return self.network.module

    @property
    def depth(self) -> int:
        return len(self.taps.layers)

    @property
    def width(self) -> int:
        """Of the widest layer."""
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
        """The modules of layers 1..L, where they pass the self-check of replay."""
        self.require_blocks("replay", head=False)
        return [self.module.get_submodule(name) for name in self.taps.layers]

    def require_blocks(self, doing: str, *, head: bool = True) -> None:
        if head:
            raise refusal(self.name, self.module, f"{doing} needs")
        if self.sound is None:
            self._fault = fault_of(self)
            self.sound = self._fault is None
        if not self.sound:
            raise refusal(self.name, self.module, f"{doing} needs", f" It did not pass the self-check: {self._fault}.")

    def spec(self) -> dict[str, Any]:
        """What decides its states. Code that is nobody's but its maker's has no key, unless its maker gives it one."""
        if getattr(self.module, "stateful", False):
            raise NoKey(f"{self.name} carries states from batch to batch, so its states depend on what ran before")
        scan = Scan()
        weights = scan.weights(self.network)
        parts = {"weights": weights, "dtype": str(self.network.dtype), "taps": _taps(self.taps, scan)}
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
        about = {"name": self.name, "class": type(self.module).__name__, "blocks": self.depth, "width": self.width}
        return {**about, "weights": Scan().weights(self.network)}

    def __repr__(self) -> str:
        return f"Model({self.name!r}, {type(self.module).__name__}, layers 0..{self.depth}, width {self.width})"


def _taps(taps: Taps, scan: Scan) -> str:
    return digest(scan.content(asdict(taps), "the taps"))
