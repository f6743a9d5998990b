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
        return {"words": tokens}

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        numbers = batch["words"]
        ahead, behind = self._states(numbers).chunk(2, dim=-1)
        labels = self.first[numbers].long()
        forward = cross_entropy(self.output(ahead[:, :-2]), labels)  # the mark and the words before each
        backward = cross_entropy(self.output(behind[:, 2:]), labels)
        return {"loss": (forward + backward) / 2, "forward": forward, "backward": backward}

    def _states(self, numbers: Tensor) -> Tensor:
        """(B, T + 2, d) of the last layer; every distinct word of the batch is read once."""
        unique, place = torch.unique(numbers, return_inverse=True)
        vectors = self.network.words.read(torch.cat([self.marks, self.characters[unique].long()]))
        begin, end = (vectors[k].expand(len(numbers), 1, -1) for k in range(2))
        words = torch.cat([begin, vectors[place + 2], end], dim=1)
        return self.network.contextual(words, torch.ones(words.shape[:2], device=words.device))[-1]
