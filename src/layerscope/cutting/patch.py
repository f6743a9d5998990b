"""Patches: what a cut takes away is solved for on unlabelled texts, and folded into weights that are there anyway.

Nothing is trained. Where blocks a..b go, the last matrix of the block before them is solved anew, so that the state it
leaves is near the whole model's state after block b (as ReplaceMe does by a map behind it, arXiv 2505.02819). Where a
head reads the last state through a dense layer of its own, that layer is solved anew, so that it gives what it gives in
the whole model. Where a norm stands between a matrix and the state, only the norm's scale and shift can be tried.

Three sets of texts are kept apart (see `patch_texts`): one is solved on, one chooses (the ridge, and how rows are
weighted), and one tells what the patch is worth. A patch is judged by its loss there, never by its residual: a small
one may be of no use, and a block that makes the large states of a first token has a small residual that ruins the
model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from layerscope.cutting.least_squares import ElementMoments, solve, solve_elements
from layerscope.cutting.model_card import PATCH
from layerscope.cutting.patch_texts import PatchTexts
from layerscope.cutting.plan import LayerPlan, spans
from layerscope.distributed import Team
from layerscope.errors import InputError, PlanError, log
from layerscope.evaluation.divergence import DivergenceEvaluator, real_places
from layerscope.evaluation.evaluator import Evaluator, Read
from layerscope.evaluation.token_evaluator import COUNT, LOSS
from layerscope.extraction.items import Items
from layerscope.metrics import recovered
from layerscope.models import Model, Replay, load
from layerscope.models.architecture import block_modules, evaluating, head_modules
from layerscope.models.devices import is_offloaded
from layerscope.models.extras import attach_extras, extras
from layerscope.models.families import EXPERTS, WRITERS, Writer
from layerscope.models.heads import HEADS
from layerscope.models.lineage import TRAINED, learn, trained
from layerscope.models.selfcheck import close, primary, probe_inputs
from layerscope.models.sentence_embedding import Embedding, with_dense
from layerscope.similarity.moments import Moments
from layerscope.store import Artifact, write_json

RIDGES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0)  # shares of the mean square of what a matrix reads
POWERS = (0.0, 1.0)  # rows are weighted by 1 / (the length of the wanted state) ^ power
_RUINED = 1e9  # the loss of outputs that are no numbers
_AND = " + "  # between modes of pooling
_PATCHES, _WEIGHTS = "patches.json", "folds.safetensors"
_SHORTEST = 1e-6  # a state that has no length counts as one of this
_REACH = 6  # matrices that are solved for at a gap, at most, of three blocks
_MEMORY = 2 << 30  # bytes of moments that are gathered in one pass
_HEAD = 0  # the number of the block of a fold into the head
_EMBEDDING = -1  # and of a module that is put behind the pooling


class NoPlaceError(PlanError):
    """There is no place to fold a patch into, and why."""


@dataclass(frozen=True)
class Place:
    """A module of the network that a patch can be folded into."""

    block: int  # that it stands in; 0 for the head, -1 for a module behind the pooling, whose modes are the path then
    path: str  # from that block, or from the network
    module: nn.Module
    elements: bool = False  # whether it scales and shifts each element, as a norm does
    transposed: bool = False  # its weight is (in, out)
    offset: float = 0.0  # what a norm adds to its stored scale

    @property
    def old(self) -> Tensor:
        """The weight as it is solved for: (out, in), or the whole scale of a norm."""
        weight = self.module.weight.data
        assert isinstance(weight, Tensor)
        return weight.T if self.transposed else weight + self.offset if self.elements else weight

    @property
    def constant(self) -> bool:
        """Whether there is a bias or a shift."""
        return isinstance(getattr(self.module, "bias", None), Tensor)


@dataclass(frozen=True)
class Fold:
    """The weights that were solved for one place, as they are stored there, and how."""

    block: int
    path: str
    weight: Tensor
    bias: Tensor | None
    ridge: float
    power: float
    elements: bool = False

    def spec(self) -> dict[str, Any]:
        """Return how it was made, for cards and records."""
        where = {_HEAD: "head", _EMBEDDING: "embedding"}.get(self.block, f"block {self.block}")
        module = f"Dense behind {self.path} pooling" if self.block == _EMBEDDING else self.path
        return {"where": where, "module": module, "ridge": self.ridge, "weighting": self.power}

    def embedding(self, own: Embedding) -> Embedding:
        """Return an embedding with this module behind its pooling."""
        assert self.bias is not None
        return with_dense(own, tuple(self.path.split(_AND)), self.weight, self.bias)


Folds = tuple[Fold, ...]


@dataclass(frozen=True)
class Variant:
    """A plan, and what is folded into the blocks that stay."""

    plan: LayerPlan
    folds: Folds = ()


def gaps(plan: LayerPlan, depth: int) -> list[tuple[int, int]]:
    """Return, for each gap, the block before it (0 where there is none) and the last block that went."""
    ends = (0, *plan.keep, *([depth + 1] if plan.head < depth else []))
    return [(before, after - 1) for before, after in pairwise(ends) if after > before + 1]


def block_place(model: Model, block: int) -> Place:
    """Return where a patch is folded into a block; raise NoPlaceError, with the reason, where it cannot be.

    What the table says of the family is tried on the network: what is added to what the matrix gives must be added to
    what the block gives, and nothing else may happen to it.
    """
    architecture, family = model.architecture, model.network.config.model_type
    name = f"{model.name} ({family})"
    if block < 1:
        raise NoPlaceError(f"No block stands before the gap, so {name} has no matrix to fold a patch into")
    if architecture.shared:
        raise NoPlaceError(f"The blocks of {name} share their weights, so none can be changed by itself")
    if family in EXPERTS:
        raise NoPlaceError(
            f"The feed-forward part of {name} is a mixture of experts: several matrices write to the state, and which "
            "ones depends on the token, so no one matrix can be solved for"
        )
    writer = WRITERS.get(family)
    if writer is None:
        raise NoPlaceError(f"Where {name} adds its feed-forward part to the state is not known")
    place = _place(model, block, writer.norm or writer.matrix, writer)
    _check(model, place, name)
    return place


def attention_place(model: Model, block: int) -> Place:
    """Return the last matrix of a block's attention, as `block_place` does of its feed-forward part."""
    family = model.network.config.model_type
    writer = WRITERS.get(family, Writer(""))
    if not writer.attention:
        raise NoPlaceError(f"Where {model.name} ({family}) adds its attention to the state is not known")
    place = _place(model, block, writer.attention, writer)
    _check(model, place, f"{model.name} ({family})", behind=_place(model, block, writer.matrix, writer))
    return place


def _place(model: Model, block: int, path: str, writer: Writer) -> Place:
    """Return the place of a path in a block; raise NoPlaceError where there is none."""
    family = model.network.config.model_type
    module = block_modules(model.network.base_model, model.architecture)[block - 1]
    try:
        found = module.get_submodule(path)
    except AttributeError:
        raise NoPlaceError(
            f"Block {block} of {model.name} ({family}) has no {path}, so no patch can be folded into it"
        ) from None
    if not isinstance(getattr(found, "weight", None), Tensor):
        raise NoPlaceError(f"{path} in block {block} of {model.name} ({family}) has no weight of its own")
    transposed = writer.layout == "transposed" and not writer.norm
    return Place(block, path, found, bool(writer.norm), transposed, writer.offset)


def _check(model: Model, place: Place, name: str, behind: Place | None = None) -> None:
    """Raise NoPlaceError unless what a module gives is added to the state unchanged, or is the state.

    What a matrix `behind` it gives follows from the state that it is added to, and is left out.
    """
    weight: Any = place.module.weight
    expected = (1,) if place.elements else (2,)
    if weight.dim() not in expected or place.old.shape[0] != model.width:
        raise NoPlaceError(f"{place.path} in block {place.block} of {name} does not give states of its width")
    moved, given = list[Tensor](), list[Tensor]()

    def move(module: nn.Module, args: Any, output: Tensor) -> Tensor:
        moved.append(torch.ones_like(output) * output.detach().abs().amax())
        return output + moved[-1]

    def block(replay: Replay) -> Tensor:
        state = replay.run(replay.states[place.block - 1], place.block)
        return state if behind is None else state - given[-1].reshape(state.shape)

    with torch.inference_mode(), evaluating(model.network):
        replay = Replay(model, probe_inputs(model, rows=1))
        handles = []
        if behind is not None:
            handles.append(behind.module.register_forward_hook(lambda module, args, output: given.append(output)))
        try:
            before = block(replay)
            handles.append(place.module.register_forward_hook(move))
            after = block(replay)
        finally:
            for handle in handles:
                handle.remove()
    if len(moved) != 1 or not close(after, before + moved[0].reshape(before.shape)):
        raise NoPlaceError(
            f"What {place.path} of block {place.block} of {name} gives is not added to the state unchanged "
            f"({'a norm or a factor stands' if not place.elements else 'something stands'} between)"
        )


def head_place(model: Model) -> Place | None:
    """Return the head's first dense layer, where the head reads one state for a text, or the state of every token."""
    kind = HEADS[model.head]
    if not (kind.classifier or model.head in ("tags", "masked")):
        return None
    network, seen = model.network, list[tuple[str, Tensor]]()
    inside = f"{network.base_model_prefix}."
    handles = []
    for path in head_modules(network, model.architecture):
        for name, module in network.get_submodule(path).named_modules(prefix=path):
            # A pooler gives nothing to the heads that answer at every token.
            if isinstance(module, nn.Linear) and (kind.classifier or not path.startswith(inside)):
                handles.append(module.register_forward_pre_hook(partial(_see, seen, name)))
    try:
        with torch.inference_mode(), evaluating(network):
            inputs = probe_inputs(model)
            network(**inputs)
    finally:
        for handle in handles:
            handle.remove()
    if not seen or seen[0][1].shape[-1] != model.width:
        return None
    path, read = seen[0]
    if (read.dim() == 3) == kind.classifier:  # a classifier that gives an answer at every token, and takes one of them
        return None
    module = network.get_submodule(path)
    tied = module.weight is network.get_input_embeddings().weight
    return None if tied else Place(_HEAD, path, module)


def embedding_places(own: Embedding, width: int) -> list[Place]:
    """Return modules to put behind the pooling, one for the model's own and one for the mean of all tokens.

    They give what the model's own pooling gives, and begin as nearly that as they can: as the identity.
    """
    places = []
    for modes in dict.fromkeys([own.modes, ("mean",)]):
        module = nn.Linear(width * len(modes), width * len(own.modes))
        eye = torch.eye(width).repeat(len(own.modes), 1)
        module.weight.data = torch.eye(width * len(own.modes)) if modes == own.modes else eye
        module.bias.data.zero_()
        places.append(Place(_EMBEDDING, _AND.join(modes), module))
    return places


def _see(seen: list[tuple[str, Tensor]], path: str, module: nn.Module, args: tuple[Tensor, ...]) -> None:
    seen.append((path, args[0]))


def _module(model: Model, fold: Fold) -> nn.Module:
    """Return the module of a model that a fold goes into, whose blocks still have their numbers."""
    if fold.block == _HEAD:
        return model.network.get_submodule(fold.path)
    return block_modules(model.network.base_model, model.architecture)[fold.block - 1].get_submodule(fold.path)


@contextmanager
def installed(model: Model, folds: Folds) -> Iterator[None]:
    """Give the network the weights of folds until the block ends."""
    before: list[tuple[nn.Module, Tensor, Tensor | None]] = []
    try:
        for fold in folds:
            if fold.block == _EMBEDDING:
                continue
            module: Any = _module(model, fold)
            bias = module.bias.data if fold.bias is not None else None
            before.append((module, module.weight.data, bias))
            module.weight.data = fold.weight.to(module.weight)
            if fold.bias is not None:
                module.bias.data = fold.bias.to(module.weight)
        yield
    finally:
        for module, weight, bias in reversed(before):
            module.weight.data = weight
            if bias is not None:
                module.bias.data = bias


def fold_into(smaller: Model, plan: LayerPlan, folds: Folds) -> None:
    """Give folds to a model that was cut by a plan, where blocks have other numbers.

    Its tensors are replaced and not written into: other models may lie in the same memory.
    """
    for fold in folds:
        if fold.block == _EMBEDDING:
            held = extras(smaller.network)
            made = fold.embedding(held.embedding or Embedding())
            attach_extras(smaller.network, replace(held, embedding=made))
            continue
        there = fold if fold.block == _HEAD else replace(fold, block=plan.keep.index(fold.block) + 1)
        module: Any = _module(smaller, there)
        module.weight.data = fold.weight.to(module.weight, copy=True)
        if fold.bias is not None:
            module.bias.data = fold.bias.to(module.bias, copy=True)


def _state(replay: Replay, variant: Variant, last: int | None = None) -> Tensor:
    """Return the state after the last kept block, or before block `last`; the folds are installed."""
    changed = {fold.block for fold in variant.folds}
    keep = variant.plan.keep if last is None else tuple(block for block in variant.plan.keep if block < last)
    same = 0
    while same < len(keep) and keep[same] == same + 1 and keep[same] not in changed:
        same += 1
    state = replay.states[same]
    for block in keep[same:]:
        state = replay.run(state, block)
    return state


def answers(evaluator: Evaluator, model: Model, variants: Sequence[Variant]) -> np.ndarray:
    """Return (1 + variants, n, numbers): what the evaluator sums of the whole model's outputs and of each variant's."""
    subject = evaluator.subject

    def act(inputs: dict[str, Tensor], read: Read) -> Tensor:
        replay = Replay(subject, inputs)
        found = [read(replay.result)]
        for variant in variants:
            with installed(model, variant.folds), embedding_as(evaluator, variant.folds):
                sums = read(replay.finish(_state(replay, variant)))
                found.append(torch.nan_to_num(sums, nan=_RUINED, posinf=_RUINED))
        return torch.stack(found)

    return evaluator.logits(act, f"patches of {model.name}", note=False)


@contextmanager
def embedding_as(evaluator: Any, folds: Folds) -> Iterator[None]:
    """Let an evaluator make embeddings as folds say until the block ends."""
    behind = [fold for fold in folds if fold.block == _EMBEDDING]
    own = evaluator.embedding if behind else None
    try:
        for fold in behind:
            evaluator.embedding = fold.embedding(evaluator.embedding)
        yield
    finally:
        if behind:
            evaluator.embedding = own


def losses(sums: np.ndarray) -> np.ndarray:
    """Return (..,) the mean loss of (.., n, numbers) sums."""
    totals = sums.astype(float).sum(axis=-2)
    return totals[..., LOSS] / totals[..., COUNT]


@dataclass(frozen=True)
class Request:
    """What is to be solved for: the weights of a place, on a variant's states, for a layer of the whole model."""

    variant: Variant
    place: Place
    target: int  # the layer whose states are wanted; of a head, what it gives in the whole model is
    power: float = 0.0
    end: int = 0  # the block whose output is to be that state, where it is a later one than that of the place

    @property
    def size(self) -> int:
        """The bytes of its moments."""
        rows, columns = self.place.old.shape[-1], self.place.old.shape[0]
        return 32 * columns if self.place.elements else 8 * (rows + columns) ** 2

    def empty(self, device: torch.device) -> Moments | ElementMoments:
        """Return moments without rows."""
        if self.place.elements:
            return ElementMoments(self.place.old.shape[0], device)
        out, width = self.place.old.shape
        return Moments([width, out], pairs=[(0, 1)], exact=True, device=device)

    def solved(self, moments: Moments | ElementMoments, ridge: float, dtype: torch.dtype) -> Fold:
        """Return the fold for a ridge, rounded to the float type that the weights have on disk."""
        place, constant = self.place, self.place.constant
        if isinstance(moments, ElementMoments):
            weight, bias = solve_elements(moments, place.old, ridge, constant=constant)
            weight = weight - place.offset
        else:
            weight, bias = solve(moments, place.old, ridge, constant=constant)
            weight = weight.T if place.transposed else weight
        like: Any = place.module.weight
        stored = [None if part is None else part.to(dtype).to(like).contiguous() for part in (weight, bias)]
        assert stored[0] is not None
        return Fold(place.block, place.path, stored[0], stored[1], ridge, self.power, place.elements)


def gathered(evaluator: Evaluator, model: Model, requests: Sequence[Request]) -> list[Moments | ElementMoments]:
    """Return the moments of each request, of one pass over the texts; memory does not grow with them."""
    sums = [request.empty(model.device) for request in requests]
    subject = model if any(request.place.block == _HEAD for request in requests) else evaluator.subject

    def measure(items: Items, inputs: dict[str, Tensor]) -> None:
        replay = Replay(subject, inputs)
        real = real_places(items, inputs["input_ids"].shape[-1], evaluator.padding_left).to(model.device)
        for request, moments in zip(requests, sums, strict=True):
            with installed(model, request.variant.folds):
                if request.place.block == _EMBEDDING:
                    read, wanted = _pooled(replay, request, evaluator, real)
                else:
                    read, wanted = _rows(replay, request)
            if read.dim() == 3:
                read, wanted = read[real], wanted[real]
            elif read.dim() > 3:
                raise NoPlaceError("its states have more than three axes")
            weights = None
            if request.power:
                lengths = replay.states[request.target][real].double().norm(dim=-1)
                weights = lengths.clamp_min(_SHORTEST) ** -request.power
            moments.update([read, wanted], weights)

    for _ in evaluator.over_batches(measure, f"states of {model.name}"):
        pass
    with torch.inference_mode():  # as the rows that wait were made
        for moments in sums:
            moments.settle()
    return sums


def _pooled(replay: Replay, request: Request, evaluator: Any, real: Tensor) -> tuple[Tensor, Tensor]:
    """Return the pooled states of a variant, and those of the whole model under its own pooling."""
    plain, prompt = replace(evaluator.embedding, steps=()), evaluator.prompt_length
    wanted = plain.pooled(primary(replay.result), real, prompt)
    modes = tuple(request.place.path.split(_AND))
    states = primary(replay.finish(_state(replay, request.variant)))
    return replace(plain, modes=modes).pooled(states, real, prompt), wanted


def _rows(replay: Replay, request: Request) -> tuple[Tensor, Tensor]:
    """Return what a place reads on the variant's states, and what it should give."""
    place, seen = request.place, list[tuple[Tensor, Tensor]]()

    def see(module: nn.Module, args: Any, output: Tensor) -> None:
        seen.append((args[0].detach(), output.detach()))

    handle = place.module.register_forward_hook(see)
    try:
        if place.block == _HEAD:
            replay.finish(replay.states[-1])
            replay.finish(_state(replay, request.variant))
            (_, wanted), (read, _) = seen
            return read, wanted
        entering = _state(replay, request.variant, place.block)
        state = replay.run(entering, place.block)
        for block in range(place.block + 1, request.end + 1):
            state = replay.run(state, block)
    finally:
        handle.remove()
    read, given = (part.reshape(*state.shape[:-1], part.shape[-1]) for part in seen[-1])
    if place.elements:  # a norm gives scale x normalised + shift: what it reads is the normalised state
        shift: Any = place.module.bias if place.constant else 0.0
        read = (given - shift) / place.old
    # What is missing in the end is asked of what the matrix gives, which the state carries on. In float64, since states
    # of 16 bits would lose in the difference what the matrix gives.
    return read, replay.states[request.target].double() - (state.double() - given.double())


@dataclass(frozen=True)
class Domain:
    """What a patch is worth on texts that it was neither solved nor chosen on: the loss of three models there.

    `loss` is `nll`, or `divergence` from the whole model's answers.
    """

    task: str
    loss: str
    texts: int
    rows_are: str
    whole: float
    cut: float
    patched: float

    @property
    def better(self) -> bool:
        """Whether the patched model has less loss than the plain cut."""
        return self.patched < self.cut

    @property
    def regained(self) -> float:
        """The share of the loss that the cut costs and the patch takes back; NaN where the cut costs nothing."""
        return recovered(self.whole, self.cut, self.patched)

    @property
    def share(self) -> str:
        """What is said of that share; nothing where it is none."""
        return f", {self.regained:.0%} of what the cut costs is back" if 0 < self.regained <= 1 else ""

    def entry(self) -> dict[str, Any]:
        """Return the domain for the card of a checkpoint."""
        losses = {"whole": self.whole, "cut": self.cut, "patched": self.patched}
        rounded = {name: round(value, 6) for name, value in losses.items()}
        return {"task": self.task, "loss": self.loss, "held_out": self.texts, "rows_are": self.rows_are, **rounded}


@dataclass(frozen=True)
class Patch:
    """What was solved for one plan.

    Attributes:
        plan: The plan.
        folds: The weights to fold in; none where the patch is not applied.
        tried: How each fold was made, those that were dropped in the end included.
        domains: The loss on held-out texts, of the domain of the calibration first.
        notes: Why something was not done, in sentences.
        solved_on: How many texts, or windows, and how many tokens it was solved on, and of which task and split.
    """

    plan: LayerPlan
    folds: Folds
    tried: tuple[dict[str, Any], ...]
    domains: tuple[Domain, ...]
    notes: tuple[str, ...]
    solved_on: Mapping[str, Any]

    @property
    def applied(self) -> bool:
        """Whether anything is folded in."""
        return bool(self.folds)

    def __str__(self) -> str:
        tried = ", ".join(f"{each['module']} of {each['where']}" for each in self.tried)
        shown = "; ".join(
            f"{each.task} ({each.loss}): {each.cut:.4f} cut, {each.patched:.4f} patched, {each.whole:.4f} whole "
            f"({each.texts} held-out {each.rows_are}){each.share}"
            for each in self.domains
        )
        if not self.applied:
            return " ".join(f"{note}." for note in self.notes) or "There is nothing to patch."
        return f"Solved anew without training: {tried}. Loss on {shown}."

    def sentences(self) -> list[str]:
        """Return what was solved, and what was not done and why."""
        return [str(self), *(f"{note}." for note in self.notes if self.applied)]

    def entry(self) -> dict[str, Any]:
        """Return the patch for the card of a checkpoint."""
        return {
            "method": PATCH,
            "solved": [f"{each['module']} of {each['where']}, ridge {each['ridge']:g}" for each in self.tried],
            **self.solved_on,
            "domains": [domain.entry() for domain in self.domains],
        }


class Patches(Artifact):
    """The patches of a model for some plans, all solved together, in one pass over the texts for each gap."""

    kind = "patches"
    version = 3  # 2 solved one matrix for each gap

    def __init__(self, model: Model, plans: Sequence[LayerPlan], texts: PatchTexts) -> None:
        if texts.solving.model.network is not model.network:
            raise ValueError("the texts of a patch must be dealt for the network that is patched, not for a copy of it")
        model.require_blocks("patching")
        if is_offloaded(model.network):
            raise InputError(
                f"Some weights of {model.name} stay on the host or the disk until they are needed, so none can be "
                "solved for; open it on a device with more memory, or patch a smaller model."
            )
        self.model, self.plans, self.texts = model, list(plans), texts

    def spec(self) -> dict[str, Any]:
        return {"model": self.model.spec(), "plans": [plan.spec() for plan in self.plans], **self.texts.spec()}

    def solved(self) -> list[Patch]:
        """Return the patch of each plan, from the store where it is there."""
        folder = self.produce(Team.current())
        tensors = load_file(folder / _WEIGHTS)
        stored = json.loads((folder / _PATCHES).read_text(encoding="utf-8"))
        patches = []
        for number, (plan, entry) in enumerate(zip(self.plans, stored, strict=True)):
            folds = [
                Fold(**{**fold, **{part: tensors.get(f"{number}.{k}.{part}") for part in ("weight", "bias")}})
                for k, fold in enumerate(entry.pop("folds"))
            ]
            domains = tuple(Domain(**domain) for domain in entry.pop("domains"))
            lists = {name: tuple(entry[name]) for name in ("tried", "notes")}
            patches.append(Patch(plan, tuple(folds), domains=domains, solved_on=entry["solved_on"], **lists))
        return patches

    def build(self, folder: Path) -> None:
        search = _Search(self.model, self.texts, [Variant(plan) for plan in self.plans])
        search.run()
        tensors, entries = dict[str, Tensor](), list[dict[str, Any]]()
        for number, patch in enumerate(search.patches()):
            for k, fold in enumerate(patch.folds):
                parts = {"weight": fold.weight, "bias": fold.bias}
                tensors |= {f"{number}.{k}.{n}": p.cpu().clone() for n, p in parts.items() if p is not None}
            folds = [{**vars(fold), "weight": None, "bias": None} for fold in patch.folds]
            entries.append(
                {
                    "folds": folds,
                    "tried": patch.tried,
                    "domains": [asdict(domain) for domain in patch.domains],
                    "notes": patch.notes,
                    "solved_on": dict(patch.solved_on),
                }
            )
        if Team.current().is_main:
            save_file({**tensors, "count": torch.tensor(len(entries))}, folder / _WEIGHTS)
            write_json(folder / _PATCHES, entries)


class _Search:
    """Solves gap by gap, each on the states of the model that is patched so far, then the head."""

    def __init__(self, model: Model, texts: PatchTexts, variants: list[Variant]) -> None:
        self.model, self.texts, self.variants = model, texts, variants
        self.notes: list[list[str]] = [[] for _ in variants]
        self.head = head_place(model)
        own = getattr(texts.solving, "embedding", None)  # how states become embeddings, where the model has no head
        self.pooled: list[Place] = []
        if own is not None and own.unknown:
            for notes in self.notes:
                notes.append(f"Embeddings of {model.name} go through a {own.unknown}, which layerscope cannot run")
        elif own is not None:
            self.pooled = [replace(p, module=p.module.to(model.device)) for p in embedding_places(own, model.width)]
        held = extras(model.network).dtype
        dtype = model.network.dtype
        # A weight that the type on disk cannot hold would make the whole checkpoint larger.
        self.dtype = held if held is not None and held.itemsize < dtype.itemsize else dtype

    def run(self) -> None:
        depth = self.model.depth
        every = [gaps(variant.plan, depth) for variant in self.variants]
        for stage in range(max(map(len, every), default=0)):
            asked: dict[int, list[Request]] = {}
            for k, found in enumerate(every):
                if stage < len(found) and (requests := self._requests(k, *found[stage])):
                    asked[k] = requests
            going_on = self._adopt(asked)
            # The attention's matrix with it, then the blocks before it, as long as each makes the loss fall; not where
            # several plans are compared, which would take three times as long.
            for step in range(1, _REACH if len(self.variants) == 1 else 1):
                further = {k: self._further(k, *every[k][stage], step) for k in going_on}
                going_on = self._adopt({k: found for k, found in further.items() if found}, further=True)
        last = self.pooled or ([] if self.head is None else [self.head])
        if last:
            wanting = [k for k, found in enumerate(every) if found]
            self._adopt({k: [Request(self.variants[k], place, depth) for place in last] for k in wanting})

    def _requests(self, number: int, before: int, target: int) -> list[Request]:
        """Return what is tried at a gap; nothing, with a note, where there is no place for it."""
        at_top = target == self.model.depth
        if at_top and (self.head is not None or self.pooled) and self.model.architecture.final_norm is None:
            return []  # the head or the pooling reads the state itself, and takes the whole map
        try:
            place = block_place(self.model, before)
        except NoPlaceError as error:
            gone = spans(range(before + 1, target + 1))
            self.notes[number].append(f"Without blocks {gone}: {error}; heal it instead (ls.heal, layerscope heal)")
            return []
        return [Request(self.variants[number], place, target, power) for power in POWERS]

    def _further(self, number: int, before: int, target: int, step: int) -> list[Request]:
        """Return what is tried after that: matrices of attention and feed-forward parts in turn, up from the gap."""
        block = before - step // 2
        kept = self.variants[number].plan.keep
        if WRITERS[self.model.network.config.model_type].norm or not {*range(max(block, 1), before + 1)} <= {*kept}:
            return []
        try:
            place = (attention_place if step % 2 else block_place)(self.model, block)
        except NoPlaceError:
            return []
        variant = self.variants[number]
        return [Request(variant, place, target, variant.folds[-1].power, before)]

    def _adopt(self, asked: Mapping[int, list[Request]], further: bool = False) -> list[int]:
        """Solve what is asked for each variant, and let it go on with the best that is better than without.

        What comes `further` up from a gap is tried with ridges near the one before. Returns the numbers of the variants
        for which something was better.
        """
        better = []
        for numbers in _within_memory(asked):
            requests = [(k, request) for k in numbers for request in asked[k]]
            sums = gathered(self.texts.solving, self.model, [request for _, request in requests])
            solved = [(k, request, moments) for (k, request), moments in zip(requests, sums, strict=True)]
            best = {k: (self.variants[k], math.inf) for k in numbers}
            # Every other ridge first, then those beside the best one, under the weighting that was best.
            near = {k: _beside(self.variants[k].folds[-1].ridge) if further else RIDGES[1::2] for k in numbers}
            self._try([(k, r, m, ridge) for k, r, m in solved for ridge in near[k]], best, with_present=True)
            closer = []
            for k, request, moments in solved:
                fold = best[k][0].folds[-1:]
                same = fold and (fold[0].power, fold[0].path) == (request.power, request.place.path)
                if best[k][0] is not self.variants[k] and same and not further:
                    closer += [(k, request, moments, r) for r in _beside(fold[0].ridge) if r != fold[0].ridge]
            self._try(closer, best)
            for k in numbers:
                place = asked[k][0].place
                if best[k][0] is not self.variants[k]:
                    better.append(k)
                elif not further:
                    where = {_HEAD: "the head", _EMBEDDING: "the embedding"}.get(place.block, f"block {place.block}")
                    norm = (
                        ": a norm stands behind the matrix, and all that could be tried was its scale and shift; "
                        "healing (layerscope heal) trains what is left, and a truncation is patched in the head where "
                        "that reads the last block's state itself"
                    )
                    self.notes[k].append(
                        f"What was solved for {place.path} of {where} is no better than the plain cut on the texts "
                        f"that choose{norm * place.elements}"
                    )
                self.variants[k] = best[k][0]
        return better

    def _try(
        self,
        tries: Sequence[tuple[int, Request, Moments | ElementMoments, float]],
        best: dict[int, tuple[Variant, float]],
        *,
        with_present: bool = False,
    ) -> None:
        """Let the best variant of each number be one of the tries where that has less loss on the texts that choose."""
        candidates = [(k, self.variants[k]) for k in best] if with_present else []
        for k, request, moments, ridge in tries:
            fold = request.solved(moments, ridge, self.dtype)
            candidates.append((k, replace(request.variant, folds=(*request.variant.folds, fold))))
        if not candidates:
            return
        found = losses(answers(self.texts.choosing, self.model, [variant for _, variant in candidates]))[1:]
        for (k, variant), loss in zip(candidates, found, strict=True):
            if loss < best[k][1]:
                best[k] = (variant, float(loss))

    def patches(self) -> list[Patch]:
        """Return the patches, judged on texts that had no part in them; those that are no better are dropped."""
        both = [each for variant in self.variants for each in (Variant(variant.plan), variant)]
        parts = [self.texts.held] + ([] if self.texts.other is None else [self.texts.other])
        found = [losses(answers(part, self.model, both)) for part in parts]
        patches = []
        for k, variant in enumerate(self.variants):
            domains = tuple(
                Domain(
                    part.task.name,
                    "divergence" if isinstance(part, DivergenceEvaluator) else "nll",
                    len(part.examples),
                    part.rows_are,
                    *map(float, values[[0, 1 + 2 * k, 2 + 2 * k]]),
                )
                for part, values in zip(parts, found, strict=True)
            )
            folds, notes = variant.folds, list(self.notes[k])
            if folds and (worse := [domain for domain in domains if not domain.better]):
                folds = ()
                notes.append(
                    f"The patch is not applied: its loss is {worse[0].patched:.4f} on {worse[0].texts} held-out "
                    f"{worse[0].rows_are} of {worse[0].task}, and {worse[0].cut:.4f} with the plain cut"
                )
            tried = tuple(fold.spec() for fold in variant.folds)
            patches.append(Patch(variant.plan, folds, tried, domains, tuple(notes), self._solved_on()))
        return patches

    def _solved_on(self) -> dict[str, Any]:
        part = self.texts.solving
        tokens = int(sum(map(len, part.encoded())))
        return {"task": part.examples.task, "split": part.examples.split, "n": len(part.examples), "tokens": tokens}


def _beside(ridge: float) -> tuple[float, ...]:
    """Return a ridge with those beside it."""
    at = RIDGES.index(ridge)
    return RIDGES[max(at - 1, 0) : at + 2]


def _within_memory(asked: Mapping[int, list[Request]]) -> Iterator[list[int]]:
    """Yield the numbers of what is asked in portions whose moments fit into memory together."""
    portion, size = list[int](), 0
    for number, requests in asked.items():
        more = sum(request.size for request in requests)
        if portion and size + more > _MEMORY:
            yield portion
            portion, size = [], 0
        portion.append(number)
        size += more
    if portion:
        yield portion


def patch(model: Model, plan: LayerPlan, smaller: Any, texts: PatchTexts) -> Patch:
    """Solve what a plan takes away, fold it into the network that was cut by it, and return what was done."""
    found = Patches(model, [plan], texts).solved()[0]
    apply(found, smaller, texts)
    return found


def apply(found: Patch, smaller: Any, texts: PatchTexts) -> None:
    """Fold a patch into a cut network, and note it there; nothing where it is not applied."""
    if not found.applied:
        for note in found.notes:
            log.warning("%s.", note)
        return
    fold_into(load(smaller), found.plan, found.folds)
    learn(smaller, texts.learned)
    setattr(smaller, TRAINED, [*trained(smaller), found.entry()])
