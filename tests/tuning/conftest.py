"""A small task to learn."""

import pytest
from quick import rows

import layerscope as ls


@pytest.fixture(scope="module")
def task():
    return ls.task({"train": rows(48, 0), "validation": rows(24, 1)})
