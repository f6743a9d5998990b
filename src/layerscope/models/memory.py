"""How much memory a model takes on a device, as far as its shape tells, and how much is free.

What follows from weights is exact. What a batch takes besides is about right for dense transformers: a block keeps the
outputs of its products in 16 bits and the inputs of its norms in float32 for the backward pass.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from layerscope.errors import InputError
from layerscope.models.architecture import block_modules
from layerscope.models.devices import free_on
from layerscope.models.extras import parameter_count
from layerscope.models.heads import HEADS

if TYPE_CHECKING:
    from layerscope.models.load import Model

CARDS = (24, 48, 80)  # GB of memory of usual GPUs
HEALING_TOKENS = 16 * 512  # of a step of healing a language model, if nothing else is asked for
_CARD = 0.92  # the share of a card that is free for a program
_KEPT = 3.5  # bytes that a token keeps of each output of a block's products: in 16 bits, most of them twice
_NORMS = 16  # bytes that a token keeps of each feature of a block's norms: two norms, in float32, before and after
_PASSING = 16  # features of a token that are alive at once in a forward without gradients, in widths
_LOGITS = 8  # bytes of a logit beside itself: in float32, and its logarithm
_TRAINED = 16  # bytes of a weight that is trained: in float32 with its gradient and Adam's two means
_MARGIN = 1.25  # by which an estimate must be larger than what is free before work is refused


@dataclass(frozen=True)
class Footprint:
    """The shape of a model, from which follows what it takes."""

    parameters: int
    itemsize: int  # bytes of a weight
    depth: int
    width: int
    block: int  # parameters of a block
    logits: int  # numbers of an answer at every token; 0 where a text has one

    @classmethod
    def of(cls, model: Model) -> Footprint:
        """Return the footprint of a model, which may be on the meta device."""
        network: Any = model.network
        blocks = dict.fromkeys(block_modules(network.base_model, model.architecture))
        sizes = [sum(parameter.numel() for parameter in block.parameters()) for block in blocks]
        by_token = HEADS[model.head].causal or model.head == "masked"
        vocabulary = model.vocabulary if by_token else 0
        size = network.dtype.itemsize
        return cls(
            parameter_count(network), size, model.depth, model.width, sum(sizes) // max(1, len(sizes)), vocabulary
        )

    @property
    def weights(self) -> int:
        """Bytes of the weights."""
        return self.parameters * self.itemsize

    def forward(self, tokens: int) -> int:
        """Bytes of an evaluation with so many tokens in a batch."""
        passing = _PASSING * self.width + 2 * self.block // max(1, self.width)
        return self.weights + tokens * (self.itemsize * passing + self.logits * (self.itemsize + _LOGITS))

    def replay(self, tokens: int) -> int:
        """Bytes of an evaluation that keeps the state after every block, as advice and curves do."""
        return self.forward(tokens) + 2 * tokens * self.depth * self.width * self.itemsize

    def lora(self, tokens: int, rank: int = 16, checkpointing: bool = False) -> int:
        """Bytes of a training of LoRA on all blocks with so many tokens in a step."""
        added = 2 * rank * self.depth * self.block // max(1, self.width)
        return self.weights + added * _TRAINED + self._kept(tokens, checkpointing)

    def finetune(self, tokens: int, checkpointing: bool = False) -> int:
        """Bytes of a training of all weights with so many tokens in a step."""
        return self.parameters * _TRAINED + self._kept(tokens, checkpointing)

    def _kept(self, tokens: int, checkpointing: bool) -> int:
        """Bytes that are kept for the backward pass; with checkpointing all of one block, and of others its input."""
        block = _KEPT * self.block / max(1, self.width) + _NORMS * self.width
        blocks = block + self.depth * self.width * 4 if checkpointing else self.depth * block
        return int(tokens * (blocks + self.logits * (self.itemsize + _LOGITS)))


def takes(model: Model, tokens: int) -> dict[str, int]:
    """Return the bytes that a model takes on a GPU, by what is done with it; `tokens` are those of a batch there."""
    shape = Footprint.of(model)
    found = {"weights": shape.weights, "evaluate": shape.forward(tokens), "advise": shape.replay(tokens)}
    if HEADS[model.head].causal:
        found["heal with LoRA"] = shape.lora(HEALING_TOKENS)
        found["heal with LoRA and checkpointing"] = shape.lora(HEALING_TOKENS, checkpointing=True)
    found["tune all weights with checkpointing"] = shape.finetune(HEALING_TOKENS, checkpointing=True)
    return found


def fitting(taken: dict[str, int], card: int) -> list[str]:
    """Return what of `takes` a card with so many GB has room for."""
    return [what for what, size in taken.items() if what != "weights" and size <= _CARD * card * 1e9]


def check_training(model: Model, bytes_taken: int, way_out: str) -> None:
    """Raise InputError where a training would take clearly more than is free on a model's GPU, which holds the model.

    What it takes is an estimate, so that it is refused only where it is larger by a quarter.
    """
    if model.device.type != "cuda":
        return
    needed, free = bytes_taken - Footprint.of(model).weights, free_on(model.device)
    if needed > _MARGIN * free:
        raise InputError(
            f"Training {model.name} takes about {bytes_taken / 1e9:.0f} GB, {needed / 1e9:.0f} of them beside its "
            f"weights, and {model.device} has {free / 1e9:.0f} GB free; {way_out}."
        )
