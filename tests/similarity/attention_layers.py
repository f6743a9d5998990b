"""Attention weights that were made up, and the names of what measures them."""

import numpy as np

BY_HEAD = ["attention_norm", "attention_pearson", "attention_js"]
WHOLE = ["attention_cka", "attention_svcca", "attention_pwcca"]
NAMES = BY_HEAD + WHOLE
LENGTHS = [1, 4, 7, 4, 2, 7, 7, 9, 1]


def layer(count, seed=0, lengths=LENGTHS, sharp=2.0, causal=False):
    """Random attention weights of one layer: a list of (heads, t, t)."""
    generator = np.random.default_rng(seed)
    found = []
    for t in lengths:
        scores = np.exp(sharp * generator.normal(size=(count, t, t)))
        scores = np.tril(scores) if causal else scores
        found.append(scores / scores.sum(axis=-1, keepdims=True))
    return found
