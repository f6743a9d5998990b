"""Rows whose classes show best in one layer."""

import numpy as np
import pytest

import layerscope as ls


@pytest.fixture(scope="session")
def planted():
    """Layer 2 of four shows the classes best, layer 0 and 1 hardly, layer 3 less well."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 3, 300)
    centres = generator.normal(size=(3, 8)) * 4
    layers = [centres[labels] * share + generator.normal(size=(300, 8)) for share in (0.02, 0.1, 1.0, 0.35)]
    return ls.Representations.from_arrays(layers, labels)
