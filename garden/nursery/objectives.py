"""What the families learn from: masked tokens, replaced tokens, the next token, tokens in a drawn order.

An objective is two halves. `prepare` draws what is random (on the device, from a generator) and always gives the same
shapes; `forward` is plain arithmetic without any waiting for the device, so that it compiles into one graph.
Sequences are full, so that no attention mask is passed. B sequences, T tokens, K of them to predict.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nursery.batches import sequences
from nursery.vocabulary import MASK_ID, SPECIAL

Batch = dict[str, Tensor]
_HEADS: dict[str, Callable[[Any, Tensor], Tensor]] = {  # from the states of a family's network to its logits
    "bert": lambda network, states: network.cls(states),
    "roberta": lambda network, states: network.lm_head(states),
    "albert": lambda network, states: network.predictions(states),
    "electra": lambda network, states: network.generator_lm_head(network.generator_predictions(states)),
    "deberta-v2": lambda network, states: network.cls(states),
    "gpt2": lambda network, states: network.lm_head(states),
    "xlnet": lambda network, states: network.lm_loss(states),
}


def chosen_positions(tokens: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """K different positions in each sequence, never a special token: (B, K), in a random order."""
    draw = torch.rand(tokens.shape, device=tokens.device, generator=generator)
    return draw.masked_fill(tokens < len(SPECIAL), -1.0).topk(count, dim=1).indices


def masked(tokens: Tensor, positions: Tensor, vocabulary: int, generator: torch.Generator) -> Tensor:
    """BERT's corruption of the chosen positions: 80 % [MASK], 10 % a random token, 10 % as it was."""
    draw = torch.rand(positions.shape, device=tokens.device, generator=generator)
    other = torch.randint(len(SPECIAL), vocabulary, positions.shape, device=tokens.device, generator=generator)
    kept = tokens.gather(1, positions)
    new = torch.where(draw < 0.8, MASK_ID, torch.where(draw < 0.9, other, kept))
    return tokens.scatter(1, positions, new)


def at(states: Tensor, positions: Tensor) -> Tensor:
    """The states of the chosen positions: (B, T, d) and (B, K) to (B, K, d)."""
    return states.gather(1, positions.unsqueeze(-1).expand(-1, -1, states.shape[-1]))


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())


class Objective(nn.Module, ABC):
    """A network with what it is trained to do. `share` is the share of tokens that are predicted."""

    summary_last = False  # sequences are [CLS] .. [SEP], or with this .. [SEP] [CLS]

    def __init__(self, network: Any, share: float) -> None:
        super().__init__()
        self.network, self.share = network, share
        self.vocabulary = int(network.config.vocab_size)
        self._head = _HEADS[network.config.model_type]

    def count(self, tokens: Tensor) -> int:
        """K: the share of the tokens that are not the sequence's own [CLS] and [SEP]."""
        return max(1, round(self.share * (tokens.shape[1] - 2)))

    def sequences(self, stream: Tensor, starts: Tensor, length: int) -> Tensor:
        """The (B, T) windows of a step, from where they begin in the stream."""
        return sequences(stream, starts, length, self.summary_last)

    @abstractmethod
    def prepare(self, tokens: Tensor, generator: torch.Generator) -> Batch:
        """Draw what is random; always the same shapes."""

    @abstractmethod
    def forward(self, batch: Batch) -> dict[str, Tensor]:
        """The losses by name; `loss` is the one to train on."""

    @property
    def kept(self) -> Any:
        """The network that is kept after training."""
        return self.network

    def logits(self, states: Tensor) -> Tensor:
        return self._head(self.network, states)


class MaskedLMEvaluator(Objective):
    """Masked language modelling (Devlin et al. 2019), masks drawn anew in every step (Liu et al. 2019)."""

    def prepare(self, tokens: Tensor, generator: torch.Generator) -> Batch:
        positions = chosen_positions(tokens, self.count(tokens), generator)
        inputs = masked(tokens, positions, self.vocabulary, generator)
        return {"inputs": inputs, "positions": positions, "labels": tokens.gather(1, positions)}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        states = self.network.base_model(input_ids=batch["inputs"]).last_hidden_state
        return {"loss": cross_entropy(self.logits(at(states, batch["positions"])), batch["labels"])}


class Causal(Objective):
    """The next token, at every position (Radford et al. 2019)."""

    def prepare(self, tokens: Tensor, generator: torch.Generator) -> Batch:
        return {"inputs": tokens}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        tokens = batch["inputs"]
        states = self.network.base_model(input_ids=tokens, use_cache=False).last_hidden_state
        return {"loss": cross_entropy(self.logits(states[:, :-1]), tokens[:, 1:])}


class Replaced(Objective):
    """Replaced-token detection (Clark et al. 2020): a small generator fills masks, the network finds what is not real.

    The loss is the generator's masked-LM loss plus `weight` times the detection loss over all tokens but special ones:
    those are never replaced, and a summary token that learned to say so was of no use for fine-tuning.
    """

    def __init__(self, network: Any, share: float, generator: Any, weight: float = 50.0) -> None:
        super().__init__(network, share)
        self.generator, self.weight = generator, weight
        for name in ("word_embeddings", "position_embeddings", "token_type_embeddings"):  # shared, as in the paper
            theirs = getattr(network.electra.embeddings, name)
            getattr(generator.electra.embeddings, name).weight = theirs.weight
        generator.generator_lm_head.weight = network.electra.embeddings.word_embeddings.weight

    def prepare(self, tokens: Tensor, generator: torch.Generator) -> Batch:
        positions = chosen_positions(tokens, self.count(tokens), generator)
        draw = torch.rand(positions.shape, device=tokens.device, generator=generator)
        return {"tokens": tokens, "positions": positions, "draw": draw}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        tokens, positions = batch["tokens"], batch["positions"]
        labels = tokens.gather(1, positions)
        states = self.generator.electra(input_ids=tokens.scatter(1, positions, MASK_ID)).last_hidden_state
        logits = _HEADS["electra"](self.generator, at(states, positions)).float()
        generated = cross_entropy(logits, labels)
        # One uniform number per position picks a token from the cumulative distribution.
        reached = logits.detach().softmax(-1).cumsum(-1) < batch["draw"].unsqueeze(-1)
        sampled = reached.sum(-1).clamp(max=self.vocabulary - 1)
        corrupted = tokens.scatter(1, positions, sampled)
        real = self.network.electra(input_ids=corrupted).last_hidden_state
        found = self.network.discriminator_predictions(real)
        wrong = F.binary_cross_entropy_with_logits(found.float(), (corrupted != tokens).float(), reduction="none")
        drawn = (tokens >= len(SPECIAL)).float()
        detection = (wrong * drawn).sum() / drawn.sum()
        return {"loss": generated + self.weight * detection, "detection": detection, "generator": generated}


class Permuted(Objective):
    """Permutation language modelling (Yang et al. 2019): the last K tokens of a drawn order, each from those before it.

    Two streams of attention: the content of a token, and a query that knows its place only. It costs about twice.
    """

    summary_last = True

    def prepare(self, tokens: Tensor, generator: torch.Generator) -> Batch:
        positions = chosen_positions(tokens, self.count(tokens), generator)
        order = torch.arange(1, positions.shape[1] + 1, device=tokens.device).expand_as(positions)
        ranks = torch.zeros_like(tokens).scatter(1, positions, order)  # 0 where a token is given
        return {"inputs": tokens, "positions": positions, "ranks": ranks}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        tokens, positions, ranks = batch["inputs"], batch["positions"], batch["ranks"]
        hidden = (ranks.unsqueeze(1) > 0) & (ranks.unsqueeze(1) >= ranks.unsqueeze(2))  # (B, from, to)
        wanted = F.one_hot(positions, tokens.shape[1])
        queries = self.network.transformer(
            input_ids=tokens, perm_mask=hidden.float(), target_mapping=wanted.float(), use_mems=False
        ).last_hidden_state  # (B, K, d)
        return {"loss": cross_entropy(self.logits(queries), tokens.gather(1, positions))}


OBJECTIVES: dict[str, type[Objective]] = {
    "masked": MaskedLMEvaluator,
    "causal": Causal,
    "replaced": Replaced,
    "permuted": Permuted,
}
