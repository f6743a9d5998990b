"""Blocks of layers in untrained networks, which have none to find."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pandas

import layerscope as ls

TITLE = "Blocks of layers in untrained networks"
TEXT = """
An untrained network changes gradually from layer to layer, whatever its family. Each row is one of the garden's
families with other random weights each time (`random:garden:..`, 12 blocks; the rounds are seeds), compared with itself
by linear CKA over the first 200 docstrings of `pydocs` (train); the rate is the share of networks with p < .05. Over
all families and both pools it must be at most .10.
"""
ROUNDS = 5
SLOW = True  # networks are run
FAMILIES = ("albert", "bert", "electra", "gpt2", "roberta", "xlnet")
POOLS = ("cls", "mean")
TEXTS = 200


def splits(family: str, seed: int, texts: int = TEXTS) -> Iterator[ls.Blocks]:
    """The split of one network's layers, by each pool."""
    model = ls.load(f"random:garden:{family}-s0", seed=seed, device="cpu")
    for pool in POOLS:
        yield ls.layer_blocks(ls.compare(model, task="pydocs", split="train", pool=pool, limit=texts))


def table(rounds: int, seed: int) -> pandas.DataFrame:
    """The rates and the strengths of each family, and of all."""
    rows = []
    for family in FAMILIES:
        found = [list(splits(family, seed + k)) for k in range(rounds)]
        p_values, strengths = (np.array([[getattr(s, name) for s in pair] for pair in found]) for name in _MEASURED)
        rows.append({"family": family, **_rates(p_values), **_strengths(strengths), "p": p_values})
    every = np.concatenate([row.pop("p") for row in rows])
    rows.append({"family": "all", **_rates(every), **dict.fromkeys(_strengths(every), "")})
    return pandas.DataFrame([{**row, "wanted": "at most .10" if row["family"] == "all" else ""} for row in rows])


_MEASURED = ("p_value", "strength")


def _rates(p_values: np.ndarray) -> dict[str, float]:
    """By pool, and over both."""
    each = {f"p < .05, pool {pool}": float((p_values[:, k] < 0.05).mean()) for k, pool in enumerate(POOLS)}
    return {**each, "p < .05, both": float((p_values < 0.05).mean())}


def _strengths(strengths: np.ndarray) -> dict[str, str]:
    return {
        f"strength, pool {pool}": f"{strengths[:, k].min():.2f} to {strengths[:, k].max():.2f}"
        for k, pool in enumerate(POOLS)
    }
