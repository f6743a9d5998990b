"""Houlsby et al. (2019) adapters: a bottleneck after attention and after the feed-forward part of chosen blocks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
from pydantic import Field
from safetensors.torch import save_file
from torch import Tensor, nn

from layerscope.errors import DataError, ModelError
from layerscope.models import Model
from layerscope.models.architecture import block_modules, head_modules
from layerscope.store import Saved, inside, open_tensors, read_json, write_json
from layerscope.tuning.method import ADAPTER, Method, head_parameters, unfreeze
from layerscope.tuning.strategy import Strategy

CONFIG, WEIGHTS = "adapter.json", "adapter.safetensors"
_SPREAD = 0.02  # BERT's initialisation, of both matrices (Xie et al. 2022, B.2)


class Bottleneck(nn.Module):
    """x + up(gelu(down(x))), which is near the identity at the start."""

    def __init__(self, size: int, width: int, like: Tensor) -> None:
        super().__init__()
        options: Any = {"device": like.device, "dtype": like.dtype}
        self.down, self.up = nn.Linear(size, width, **options), nn.Linear(width, size, **options)
        for linear in (self.down, self.up):
            nn.init.normal_(linear.weight, std=_SPREAD)
            nn.init.zeros_(linear.bias)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.up(nn.functional.gelu(self.down(x)))


def _after(module: nn.Module, args: Any, output: Tensor) -> Tensor:
    return module.adapter(output)  # type: ignore[operator]


def _before(module: nn.Module, args: tuple[Any, ...]) -> tuple[Any, ...]:
    return (module.adapter(args[0]), *args[1:])  # type: ignore[operator]


class Adapter(Method):
    """Trains bottlenecks of width `size` in the strategy's blocks, the layer norms of these blocks, and the head."""

    name = "adapter"
    size_is = "width of an adapter"
    default_size = 256
    standard = False

    def spec(self) -> dict[str, Any]:
        return {**super().spec(), "spread": _SPREAD}  # adapters whose `up` began nearer to 0 are others

    def check(self, model: Model, strategy: Strategy) -> None:
        super().check(model, strategy)
        self.needs_blocks(strategy)
        places_of(model)

    def _prepare(self, model: Model, strategy: Strategy, embeddings: bool, seed: int) -> nn.Module:
        assert self.size is not None
        add_adapters(model, strategy.blocks, self.size, seed)
        adapters = [p for name, p in model.network.named_parameters() if ".adapter." in name]
        unfreeze(adapters + norms_of(model, strategy.blocks) + head_parameters(model))
        return model.network

    def save(self, tuned: Model, trained: Any, folder: Path, strategy: Strategy) -> None:
        """A small safetensors file and its config."""
        place, blocks = folder / ADAPTER, strategy.blocks
        place.mkdir()
        state = {name: value.cpu().contiguous() for name, value in trained_state(tuned, blocks).items()}
        save_file(state, place / WEIGHTS)
        card = {"format": 1, "blocks": list(blocks), "width": self.size, "strategy": str(strategy)}
        write_json(place / CONFIG, card)

    def reopen(self, base: Model, folder: Path) -> Model:
        return load_adapters(base, folder / ADAPTER)


def places_of(model: Model) -> tuple[str, str]:
    """Return the modules of a block after which bottlenecks stand; raise ModelError where the family has no record."""
    architecture = model.architecture
    if architecture.attention_out is None or architecture.feedforward_out is None:
        raise ModelError(
            f"{model.name} ({architecture.family}) has no record of where adapters sit; tune it with finetune."
        )
    return architecture.attention_out, architecture.feedforward_out


def add_adapters(model: Model, blocks: Sequence[int], width: int, seed: int = 0) -> None:
    """Put bottlenecks into some blocks (1..L) of the model, in place."""
    paths = places_of(model)
    modules = block_modules(model.network.base_model, model.architecture)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        for block in dict.fromkeys(modules[b - 1] for b in blocks):
            for path in paths:
                place = block.get_submodule(path)
                like = next(place.parameters())
                place.add_module("adapter", Bottleneck(model.width, width, like))
                if "norm" in path:  # the norm ends the part: the adapter stands before it
                    place.register_forward_pre_hook(_before)
                else:
                    place.register_forward_hook(_after)


def norms_of(model: Model, blocks: Sequence[int]) -> list[nn.Parameter]:
    """Return the parameters of the layer norms in some blocks."""
    modules = block_modules(model.network.base_model, model.architecture)
    norms: dict[int, nn.Parameter] = {}
    for block in dict.fromkeys(modules[b - 1] for b in blocks):
        for module in block.modules():
            if "norm" in type(module).__name__.lower():
                norms |= {id(p): p for p in module.parameters(recurse=False)}
    return list(norms.values())


def trained_state(model: Model, blocks: Sequence[int]) -> dict[str, Tensor]:
    """Return what adapter tuning changes: adapters, the blocks' norms and the head, by name."""
    network = model.network
    heads = tuple(f"{path}." for path in head_modules(network, model.architecture))
    norms = {id(p) for p in norms_of(model, blocks)}
    return {
        name: parameter.detach()
        for name, parameter in network.named_parameters()
        if ".adapter." in name or id(parameter) in norms or name.startswith(heads)
    }


class AdapterCard(Saved):
    """The config that is saved beside the weights of adapters."""

    blocks: list[Annotated[int, Field(ge=1)]] = Field(min_length=1)
    width: int = Field(ge=1)


def load_adapters(model: Model, folder: str | Path) -> Model:
    """Load adapters into a model as they were made for (a classifier with the same head), in place, and return it."""
    folder = Path(folder)
    if not (folder / CONFIG).exists():
        raise DataError(f"{folder} holds no adapter that layerscope saved: there is no {CONFIG} in it.")
    card = read_json(inside(folder, CONFIG), AdapterCard, way_out="tune again")
    file = open_tensors(inside(folder, WEIGHTS), way_out="tune again")
    fits = any(card.width in file.shape(name) for name in file.names if ".adapter." in name)
    if not fits or max(card.blocks) > model.depth:
        raise ModelError(
            f"The adapter in {folder} does not fit {model.name}: it is of width {card.width} in blocks up to "
            f"{max(card.blocks)}, and its weights or the model's blocks 1..{model.depth} are others."
        )
    for name in file.names:
        file.finite(name, name)
    state = {name: file.tensor(name) for name in file.names}
    add_adapters(model, card.blocks, card.width)
    parameters = dict(model.network.named_parameters())
    stray = [k for k in state if k not in parameters or parameters[k].shape != state[k].shape]
    if stray or state.keys() != trained_state(model, card.blocks).keys():
        raise ModelError(f"The adapter in {folder} does not fit {model.name} ({(stray or ['parts missing'])[0]}).")
    with torch.no_grad():
        for name, value in state.items():
            parameters[name].copy_(value)
    return model
