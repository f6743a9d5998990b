"""Two language models that read a text from either end and share nothing but its words (Peters et al. 2018).

What is predicted is the first piece of a word in the garden's vocabulary; what is read are its characters.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from nursery.objectives import Batch, Objective, cross_entropy

_ROUND = 2048  # a batch's distinct words are filled up to a multiple: few shapes, so that a compiled step stays one


class Bidirectional(Objective):
    """The next word from those before it, and the word before from those after it, at every position."""

    characters: Tensor
    first: Tensor
    marks: Tensor

    def __init__(self, network: Any, characters: Tensor, first: Tensor, vocabulary: int) -> None:
        """`characters` (words, longest) and `first` (words,): what is read and predicted for each distinct word."""
        nn.Module.__init__(self)
        from layerscope.models.elmo import character_ids

        self.network, self.vocabulary = network, vocabulary
        options = network.options
        self.output = nn.Linear(options.lstm.projection_dim, vocabulary)  # for both directions, as in the paper
        marks = character_ids([], options.char_cnn.max_characters_per_token)
        for name, tensor in (("characters", characters), ("first", first), ("marks", marks)):
            self.register_buffer(name, tensor)

    @staticmethod
    def of_words(options: dict[str, Any], folder: Path, vocabulary: int) -> Bidirectional:
        """With the distinct words of a cache folder of `words.number_words`."""
        from layerscope.models.elmo import Elmo, ElmoOptions

        characters, first = (torch.from_numpy(np.load(folder / f"{name}.npy")) for name in ("characters", "first"))
        return Bidirectional(Elmo(ElmoOptions.model_validate(options)), characters, first, vocabulary)

    def sequences(self, stream: Tensor, starts: Tensor, length: int) -> Tensor:
        """(B, T) numbers of words; the marks at both ends, which count in `length`, are added when they are read."""
        places = starts.to(stream.device, non_blocking=True).unsqueeze(1)
        return stream[places + torch.arange(length - 2, device=stream.device)].long()

    def prepare(self, tokens: Tensor, generator: torch.Generator) -> Batch:
        """Characters of the marks and of the distinct words, where each word of the texts is among those, labels."""
        distinct, place = torch.unique(tokens, return_inverse=True)
        filled = nn.functional.pad(distinct, (0, -len(distinct) % min(_ROUND, tokens.numel())))
        begin, end = torch.zeros_like(place[:, :1]), torch.ones_like(place[:, :1])
        return {
            "characters": torch.cat([self.marks, self.characters[filled].long()]),
            "places": torch.cat([begin, place + 2, end], dim=1),
            "labels": self.first[tokens].long(),
        }

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        ahead, behind = self.states(batch).chunk(2, dim=-1)
        forward = cross_entropy(self.output(ahead[:, :-2]), batch["labels"])  # the mark and the words before each
        backward = cross_entropy(self.output(behind[:, 2:]), batch["labels"])
        return {"loss": (forward + backward) / 2, "forward": forward, "backward": backward}

    def states(self, batch: Batch) -> Tensor:
        """(B, T + 2, d) of the last layer; every distinct word of the batch is read once."""
        return self.network.contextual(self.network.words.read(batch["characters"])[batch["places"]])[-1]
