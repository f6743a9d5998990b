"""Texts for ELMo, and a small network with random weights of the published layout."""

import elmo_by_hand as by_hand
import torch

from layerscope.models.elmo import Elmo, character_ids
from layerscope.models.elmo_files import published_weights
from layerscope.models.elmo_options import ElmoOptions

TEXTS = [
    ["The", "cat", "sat", "."],
    ["Ünïcödé", "extraordinarily-long-word", "x"],
    ["One"],
    ["a", "much", "longer", "text", "than", "the", "others", "has", "many", "more", "words", "in", "it"],
]


def network(options=by_hand.OPTIONS, seed=0):
    parsed = ElmoOptions.model_validate(options)
    arrays = by_hand.random_arrays(options, seed)
    made = Elmo(parsed)
    made.load_state_dict(published_weights(parsed, arrays.__getitem__))
    return made.eval(), arrays


def run(made, texts):
    """Layers 0..L of each text, without marks and padding."""
    longest = made.options.char_cnn.max_characters_per_token
    rows = [character_ids(words, longest) for words in texts]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(len(row)) for row in rows], batch_first=True)
    with torch.inference_mode():
        states = made(ids, mask)
    return [[state[k, 1 : len(words) + 1].numpy() for state in states] for k, words in enumerate(texts)]
