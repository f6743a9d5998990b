"""`ls.align` and `ls.load_aligner`: mistakes are sentences, and old files are read."""

import json
import math

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.torch import save_file

import layerscope as ls
from layerscope.errors import InputError
from layerscope.registry import ALIGNERS
from tests.helpers.data import noisy_pair


def test_mistakes_are_sentences(tmp_path):
    x, y = noisy_pair(n=50)
    with pytest.raises(InputError, match="no alignment method 'lin'"):
        ls.align(x, y, method="lin")
    with pytest.raises(InputError, match="linear has no option steps; it has strength"):
        ls.align(x, y, steps=3)
    with pytest.raises(InputError, match="X has 50 rows and Y 49"):
        ls.align(x, y[:-1])
    with pytest.raises(InputError, match="Y has a NaN in row 0"):
        ls.align(x, y * np.nan)
    with pytest.raises(InputError, match=r"shape is \(50,\)"):
        ls.align(x, y[:, 0])
    with pytest.raises(InputError, match="at least 2 rows"):
        ls.align(x[:1], y[:1])
    with pytest.raises(InputError, match="given rows of width 5"):
        ls.align(x, y)(x[:, :5])
    with pytest.raises(InputError, match="strength is 'high'"):
        ls.align(x, y, strength="high")
    with pytest.raises(InputError, match="strength is nan"):
        ls.align(x, y, strength=math.nan)
    with pytest.raises(InputError, match="learning_rate is -1"):
        ls.align(x, y, method="inn", learning_rate=-1)
    with pytest.raises(InputError, match="start is 'cca'"):
        ls.align(x, y, method="inn", start="cca")
    with pytest.raises(InputError, match="mean has no option pad; it has none"):
        ls.align(x, y, method="mean", pad=True)
    with pytest.raises(InputError, match="seed is -1"):
        ls.align(x, y, seed=-1)
    with pytest.raises(InputError, match="ci is 95; it must be between 0 and 1"):
        ls.align(x, y).error(x, y, ci=95)
    with pytest.raises(InputError, match="not fitted"):
        ALIGNERS["linear"]()(x)
    other = tmp_path / "other.safetensors"
    other.write_bytes(b"nothing of the kind")
    with pytest.raises(InputError, match="is not an aligner"):
        ls.load_aligner(other)
    with pytest.raises(InputError, match="no file"):
        ls.load_aligner(tmp_path / "none")


def test_files_of_the_first_version_are_read(tmp_path):
    """Every method had an option `pad` then."""
    x, y = noisy_pair(n=50)
    aligner = ls.align(x, y)
    with safe_open(aligner.save(tmp_path / "new.safetensors"), framework="pt") as file:
        about = json.loads(file.metadata()["layerscope"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    about["options"]["pad"] = False
    save_file(tensors, tmp_path / "old.safetensors", {"layerscope": json.dumps(about)})
    np.testing.assert_array_equal(ls.load_aligner(tmp_path / "old.safetensors")(x), aligner(x))
