"""ELMo as a model: its folders, its words, its twins, and layers that agree with plain NumPy."""

import json

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.data import Examples
from layerscope.errors import InputError, ModelError
from layerscope.models.elmo import Elmo, ElmoOptions
from layerscope.models.elmo_files import published_weights, write_folder
from layerscope.models.elmo_opening import WordReader
from layerscope.store import NoKey
from tests.helpers.data import some_examples
from tests.helpers.elmo import ELMO_OPTIONS, random_arrays, states_by_hand

WORDS = [["The", "cat", "sat", "."], ["Ünïcödé", "extraordinarily-long-word", "x"], ["One"]]
TEXTS = Examples("own", "all", [" ".join(words) for words in WORDS], np.arange(3), words=WORDS, labels=np.arange(3) % 2)


def make(folder, dtype=torch.float32, **changes):
    options = {**ELMO_OPTIONS, "lstm": {**ELMO_OPTIONS["lstm"], **changes}}
    torch.manual_seed(0)
    network = Elmo(ElmoOptions.model_validate(options))
    if not changes:
        network.load_state_dict(published_weights(network.options, random_arrays(options).__getitem__))
    write_folder(network.to(dtype), folder)
    return folder


@pytest.fixture
def folder(tmp_path):
    return make(tmp_path / "elmo")


def test_words_of_a_folder_of_our_own_agree_with_numpy(folder):
    model = ls.load(str(folder))
    assert (model.depth, model.width, model.widths) == (3, 12, (12,) * 4)
    reps = ls.extract(model, TEXTS, pool="words", store=False)
    arrays = random_arrays(ELMO_OPTIONS)
    layers = [states_by_hand(words, ELMO_OPTIONS, arrays) for words in WORDS]
    for layer in range(4):
        np.testing.assert_allclose(reps[layer], np.concatenate([own[layer] for own in layers]), atol=1e-5)
    mean = ls.extract(model, TEXTS, pool="mean", store=False)
    np.testing.assert_allclose(mean[2], [own[2].mean(axis=0) for own in layers], atol=1e-5)


def test_the_published_files_open_as_the_same_model(folder, tmp_path):
    h5py = pytest.importorskip("h5py", reason="h5py is not installed: pip install 'layerscope[elmo]'")
    published = tmp_path / "published"
    published.mkdir()
    (published / "elmo_small_options.json").write_text(json.dumps(ELMO_OPTIONS))
    with h5py.File(published / "elmo_small_weights.hdf5", "w") as file:
        for name, array in random_arrays(ELMO_OPTIONS).items():
            file[name] = array
    ours, theirs = ls.load(str(folder)), ls.load(str(published))
    assert ours.spec() == theirs.spec()
    assert ls.load(f"random:{published}").spec() != theirs.spec()
    (published / "another_options.json").write_text("{}")
    with pytest.raises(ModelError, match="several files of ELMo"):
        ls.load(str(published))


def test_half_precision_on_disk_is_opened_in_float32(tmp_path):
    model = ls.load(str(make(tmp_path / "half", torch.float16)))
    assert model.network.dtype == torch.float32
    assert ls.load(str(tmp_path / "half"), dtype="bfloat16").network.dtype == torch.bfloat16


def test_twins_are_untrained_and_seeded(folder, tmp_path):
    twin, again, other = (ls.load(f"random:{folder}", seed=seed) for seed in (0, 0, 1))
    assert twin.spec() == again.spec() != other.spec()
    assert twin.depth == 3
    (tmp_path / "copy").mkdir()
    for file in folder.iterdir():
        (tmp_path / "copy" / file.name).write_bytes(file.read_bytes())
    assert ls.load(f"random:{tmp_path / 'copy'}").spec() == twin.spec()


def test_rows_are_kept_in_the_store_under_a_key_of_the_weights(folder, tmp_path):
    model = ls.load(str(folder))
    first = ls.extract(model, TEXTS, pool="words")
    ran = []
    hook = model.module.register_forward_hook(lambda *_: ran.append(1))
    again = ls.extract(model, TEXTS, pool="words")
    hook.remove()
    assert torch.equal(first[2], again[2])
    assert not ran
    with torch.no_grad():
        model.module.layers[0].forwards.project.weight += 1
    changed = ls.extract(model, TEXTS, pool="words")
    assert not torch.equal(first[2], changed[2])


def test_carried_states_are_never_kept(folder):
    model = ls.load(str(folder), stateful=True)
    with pytest.raises(NoKey, match="carries states from batch to batch"):
        model.spec()
    once, again = (ls.extract(model, TEXTS, pool="words") for _ in range(2))
    assert not torch.equal(once[1], again[1])
    assert torch.equal(once[0], again[0])


@pytest.mark.parametrize("heads", [None, 2])
def test_batches_change_nothing(tmp_path, heads):
    model = ls.load(str(make(tmp_path / "elmo", attention_heads=heads, n_layers=3)))
    examples = some_examples(30)
    ours, theirs = (ls.extract(model, examples, pool="words", batch_tokens=n, store=False) for n in (12, 4096))
    for layer in range(4):
        np.testing.assert_allclose(ours[layer], theirs[layer], atol=1e-5)


def test_marks_are_no_words_and_long_texts_are_cut():
    reader = WordReader(20)
    short, long = reader.read(["Don't stop.", ["a b", "c", "d", "e"]], 5)
    assert short.words.tolist() == [-1, 0, 1, 2, -1]  # Don ' t, and two words that are cut off
    assert short.truncated
    assert long.words.tolist() == [-1, 0, 1, 2, -1]
    assert long.special.tolist() == [True, False, False, False, True]
    batch = reader.batch([short.ids, long.ids[:2]])
    assert batch.mask.tolist() == [[1] * 5, [1, 1, 0, 0, 0]]
    assert batch.kwargs["places"].shape == (2, 5)
    assert len(batch.kwargs["character_ids"]) == len(np.unique([*short.ids, *long.ids[:2]]))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda folder: ls.extract(str(folder), TEXTS, store=False), "the pool 'cls' has no meaning"),
        (lambda folder: ls.load(str(folder), tokenizer=str.split), "takes no tokenizer"),
        (lambda folder: ls.load("garden:bert-s0", stateful=True), "is for ELMo's folders"),
        (lambda folder: ls.load(ls.load(str(folder)), stateful=True), "is for ELMo's folders"),
        (lambda folder: ls.truncate(str(folder), 1), "cutting needs a transformers network"),
        (lambda folder: ls.cut_folder(str(folder), ls.LayerPlan.truncated(3, 1), folder / "out"), "cutting needs"),
    ],
)
def test_mistakes_are_sentences(folder, call, sentence):
    with pytest.raises(InputError, match=sentence):
        call(folder)


def test_states_are_carried_by_lstms_only(tmp_path):
    folder = make(tmp_path / "transformer", attention_heads=2)
    with pytest.raises(InputError, match="is the transformer variant"):
        ls.load(str(folder), stateful=True)


def test_a_damaged_folder_is_a_sentence(folder):
    (folder / "model.safetensors").write_bytes(b"no")
    with pytest.raises(ModelError, match="does not hold the network"):
        ls.load(str(folder))
    make(folder)
    options = json.loads((folder / "options.json").read_text())
    options["lstm"]["n_layers"] = 4
    (folder / "options.json").write_text(json.dumps(options))
    with pytest.raises(ModelError, match="does not hold the network"):
        ls.load(str(folder))
