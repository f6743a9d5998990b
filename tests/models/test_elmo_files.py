"""The published files of ELMo, written here with random weights, open as the network that they hold."""

import json

import numpy as np
import pytest

from layerscope.errors import ModelError
from layerscope.models.elmo_files import published_weights, read_options, read_published
from tests.helpers.elmo import ELMO_OPTIONS, random_arrays

h5py = pytest.importorskip("h5py", reason="h5py is not installed: pip install 'layerscope[elmo]'")


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "options.json").write_text(json.dumps(ELMO_OPTIONS))
    with h5py.File(tmp_path / "weights.hdf5", "w") as file:
        for name, array in random_arrays(ELMO_OPTIONS).items():
            file[name] = array
    return tmp_path


def test_the_published_files_open(folder):
    network = read_published(folder)
    arrays = random_arrays(ELMO_OPTIONS)
    expected = published_weights(read_options(folder / "options.json"), arrays.__getitem__)
    for name, tensor in network.state_dict().items():
        np.testing.assert_array_equal(tensor, expected[name])
    assert not network.training


def test_the_forget_gate_has_its_one(folder):
    network = read_published(folder)
    bias = random_arrays(ELMO_OPTIONS)["RNN_0/RNN/MultiRNNCell/Cell1/LSTMCell/B"]
    added = network.layers[1].forwards.state.bias.detach().numpy() - bias
    np.testing.assert_allclose(added, np.repeat([0, 0, 1, 0], 10), atol=1e-6)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda f: (f / "options.json").write_text("{}"), "not an options file of ELMo"),
        (lambda f: (f / "options.json").unlink(), "not an options file of ELMo"),
        (lambda f: (f / "weights.hdf5").write_bytes(b"no"), "does not hold the network"),
        (lambda f: (f / "weights.hdf5").unlink(), "does not hold the network"),
    ],
)
def test_what_is_not_elmo_is_a_sentence(folder, change, sentence):
    change(folder)
    with pytest.raises(ModelError, match=sentence):
        read_published(folder)


def test_weights_of_another_size_are_a_sentence(folder):
    options = {**ELMO_OPTIONS, "lstm": {**ELMO_OPTIONS["lstm"], "n_layers": 5}}
    (folder / "options.json").write_text(json.dumps(options))
    with pytest.raises(ModelError, match="does not hold the network"):
        read_published(folder)
