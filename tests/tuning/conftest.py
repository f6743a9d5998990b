"""A small task to learn."""

import pytest

import layerscope as ls
from tests.helpers.data import three_class_frame


@pytest.fixture(scope="module")
def task():
    return ls.task({"train": three_class_frame(48, 0), "validation": three_class_frame(24, 1)})
