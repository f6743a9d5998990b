"""Made text with something to learn in it, and the garden's recipes shrunk to fit it."""

from __future__ import annotations

import random

LENGTH = 24
SMALL = {
    "bert": {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64},
    "roberta": {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64},
    "albert": {"embedding_size": 16, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64},
    "electra": {"embedding_size": 32, "hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64},
    "gpt2": {"n_embd": 32, "n_layer": 2},
    "xlnet": {"d_model": 32, "n_layer": 2, "d_inner": 64},
    "deberta": {"hidden_size": 32, "num_hidden_layers": 2, "intermediate_size": 64, "pooler_hidden_size": 32},
}


def make_text(articles: int, seed: int = 0) -> str:
    """Articles about one animal each, so that a word tells of the next ones."""
    draw = random.Random(seed)
    animals = ["otter", "heron", "badger", "newt", "stoat", "plover", "vole", "kite"]
    does = ["eats small fish", "sleeps by the river", "digs a deep hole", "sings in the morning", "hides from rain"]
    written = []
    for k in range(articles):
        animal = draw.choice(animals)
        lines = [f"The {animal} of place {k} {draw.choice(does)}, and the {animal} {draw.choice(does)}." for _ in "abc"]
        written.append("\n".join(lines))
    return "\n\n".join(written) + "\n"
