"""Four layers of made-up rows, and sixty short sentences."""

import numpy as np
import pytest

import layerscope as ls

SENTENCES = ["the file is a list", "return this string", "not an object of that value", "in the list: a, b and c"]


@pytest.fixture(scope="session")
def reps():
    generator = np.random.default_rng(0)
    layers = [generator.normal(size=(60, 6))]
    for _ in range(3):
        layers.append(np.tanh(layers[-1] @ generator.normal(size=(6, 6))) + 0.3 * generator.normal(size=(60, 6)))
    return ls.Representations.from_arrays(layers)


@pytest.fixture
def task(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(f"{s} {i} {'and ' * (i % 5)}" for i, s in enumerate(SENTENCES * 15)) + "\n")
    return ls.task(path)
