"""GGUF files as models: what they hold is what runs, once converted, and broken ones are a sentence."""

import json
import shutil

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.errors import ModelError
from layerscope.models import gguf as conversions
from layerscope.models.gguf import Conversion
from layerscope.store import Store
from tests.helpers.checkpoints import gguf_network, gguf_tokens, write_gguf
from tests.helpers.cli import run_here

gguf = pytest.importorskip("gguf")
IDS = torch.arange(1, 21).reshape(2, 10)


@torch.inference_mode()
def logits(network):
    return network(input_ids=IDS, use_cache=False).logits


@pytest.fixture
def file(tmp_path):
    return write_gguf(tmp_path / "tiny.gguf")


def conversions_stored():
    return [entry for entry in Store().entries() if entry.kind == "gguf" and entry.state == "done"]


def test_a_file_of_float32_is_the_network_that_was_written(file):
    opened = ls.load(file)
    assert type(opened.network).__name__ == "LlamaForCausalLM"
    assert (opened.head, opened.depth, opened.network.dtype) == ("next", 3, torch.float32)
    assert torch.allclose(logits(opened.network), logits(gguf_network()), atol=1e-5)
    assert opened.name == str(file)
    assert getattr(opened.network.config, "quantization_config", None) is None
    assert getattr(opened.network, "hf_quantizer", None) is None


@pytest.mark.parametrize(("kind", "bits"), [("Q8_0", 8), ("Q4_0", 4)])
def test_quantised_weights_are_dequantised_as_the_package_does(kind, bits, tmp_path):
    path = write_gguf(tmp_path / "tiny.gguf", kind=kind)
    opened = ls.load(path).network
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    for key, name in (("model.layers.1.mlp.up_proj.weight", "blk.1.ffn_up.weight"),):
        expected = gguf.quants.dequantize(tensors[name].data, tensors[name].tensor_type)
        assert torch.equal(opened.state_dict()[key], torch.from_numpy(expected.copy()))
    whole = gguf_network().state_dict()["model.layers.1.mlp.up_proj.weight"]
    step = whole.abs().max() / 2 ** (bits - 1)
    assert 0 < (opened.state_dict()["model.layers.1.mlp.up_proj.weight"] - whole).abs().max() <= step


def test_the_tokenizer_in_the_file_is_the_models(file):
    tokenizer = ls.load(file).tokenizer
    words = gguf_tokens()
    assert [words[i] for i in tokenizer("file and list")["input_ids"]] == ["file", "Ġ", "and", "Ġ", "list"]


def test_a_file_is_converted_once_whatever_it_is_called(file, tmp_path, monkeypatch):
    spec = ls.load(file).spec()
    stored = conversions_stored()
    monkeypatch.setattr(Conversion, "build", lambda *_: pytest.fail("it was converted again"))
    other = shutil.copy(file, tmp_path / "Other.GGUF")
    assert ls.load(other).spec() == spec
    assert conversions_stored() == stored


def test_another_content_under_the_same_name_is_another_model(file):
    first = ls.load(file).spec()
    write_gguf(file, gguf_network(seed=1))
    assert ls.load(file).spec() != first


def test_an_untrained_twin(file):
    twin = ls.load(f"random:{file}")
    assert twin.network.config.num_hidden_layers == 3
    assert not torch.allclose(logits(twin.network), logits(gguf_network()), atol=1e-3)


def test_files_beside_it_are_not_read(file):
    (file.parent / "config.json").write_text('{"model_type": "bert"}')
    (file.parent / "adapter_config.json").write_text("{}")
    (file.parent / "tokenizer.json").write_text("no tokenizer")
    opened = ls.load(file)
    assert opened.depth == 3
    assert opened.tokenizer is not None


def test_a_file_in_a_folder_is_not_opened_with_the_folder(file):
    with pytest.raises(ModelError, match=r"by naming the file itself: .*tiny.gguf"):
        ls.load(file.parent)
    gguf_network().config.save_pretrained(file.parent)
    with pytest.raises(ModelError, match=r"no weights to open; tiny.gguf in it is opened by naming the file"):
        ls.load(file.parent)


def test_what_is_cut_from_it_is_float32_and_says_where_it_comes_from(tmp_path):
    path = write_gguf(tmp_path / "tiny.gguf", kind="Q4_0")
    about = {
        "file": "tiny.gguf",
        "sha256": Conversion(path, "").sha256,
        "quantisation": "Q4_0",
        "architecture": "llama",
    }
    whole = ls.load(path)
    assert whole.described()["converted"] == about
    in_memory = ls.save(ls.cut(whole, ls.LayerPlan([1, 3])), tmp_path / "memory")
    on_disk = ls.cut_folder(path, ls.LayerPlan([1, 3]), tmp_path / "disk")
    for folder in (in_memory, on_disk):
        assert json.loads((folder / "config.json").read_text())["dtype"] == "float32"
        assert json.loads((folder / "layerscope.json").read_text())["converted"] == about
        card = (folder / "README.md").read_text()
        assert "GGUF file `tiny.gguf` (most of them Q4_0" in card
        assert about["sha256"] in card
        assert ls.load(folder).described()["converted"] == about
    assert torch.equal(logits(ls.load(in_memory).network), logits(ls.load(on_disk).network))


def test_what_is_opened_in_half_precision_is_saved_so(file, tmp_path):
    folder = ls.save(ls.truncate(ls.load(file, dtype="bfloat16"), 2), tmp_path / "half")
    assert json.loads((folder / "config.json").read_text())["dtype"] == "bfloat16"


def test_without_the_package_a_sentence_says_how_to_get_it(file, monkeypatch):
    monkeypatch.setattr(conversions.importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ModelError, match=r"pip install 'layerscope\[gguf\]'"):
        ls.load(file)


def test_a_stored_conversion_needs_no_package(file, monkeypatch):
    ls.load(file)
    monkeypatch.setattr(conversions, "_kinds", lambda _: pytest.fail("the package was asked for"))
    assert ls.load(file).depth == 3


def test_names_that_lead_to_no_such_file(tmp_path):
    with pytest.raises(ModelError, match=r"There is no file .*hf download"):
        ls.load(tmp_path / "none.gguf")
    (tmp_path / "text.gguf").write_text("a text")
    with pytest.raises(ModelError, match="does not begin with the letters GGUF"):
        ls.load(tmp_path / "text.gguf")
    (tmp_path / "folder.gguf").mkdir()
    with pytest.raises(ModelError, match=r"no config.json"):
        ls.load(tmp_path / "folder.gguf")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"architecture": "spaceship"}, "is a 'spaceship', an architecture that transformers"),
        ({"architecture": "t5"}, "'t5'"),
        ({"general__type": "adapter"}, r"holds 'adapter' \(general.type\) and not a model"),
        ({"split__count": 3}, "one of 3 parts of a model"),
        ({"drop": ("model.layers.1.mlp.up_proj.weight",)}, "1 tensors are missing"),
        ({"extra": {"rope_freqs.weight": 16}}, r"16 would be left out, as many as its tensor 'rope_freqs.weight'"),
        ({"llama__rope__scaling__type": "yarn"}, r"scales its positions \('yarn'\)"),
    ],
)
def test_files_that_are_no_causal_language_model(options, sentence, tmp_path):
    path = write_gguf(tmp_path / "other.gguf", **options)
    with pytest.raises(ModelError, match=sentence):
        ls.load(path)
    assert not [each for each in Store().entries() if each.state == "done" and each.kind == "gguf"]


@pytest.mark.parametrize(
    ("field", "value"), [("block_count", 2**31), ("embedding_length", 2**31), ("feed_forward_length", 2**31)]
)
def test_sizes_that_no_tensor_has_are_found_out_before_anything_is_built(field, value, file):
    content = bytearray(file.read_bytes())
    key = f"llama.{field}".encode()
    place = content.index(key) + len(key) + 4
    content[place : place + 4] = value.to_bytes(4, "little")
    file.write_bytes(content)
    with pytest.raises(ModelError, match=r"The weights of .* do not match its header"):
        ls.load(file)


def test_weights_that_are_no_numbers_are_refused(tmp_path):
    net = gguf_network()
    with torch.no_grad():
        net.model.layers[1].mlp.up_proj.weight[3, 3] = float("nan")
    with pytest.raises(ModelError, match=r"weights that are not numbers \(1 tensors, such as model.layers.1.mlp.up"):
        ls.load(write_gguf(tmp_path / "nan.gguf", net))


def test_the_command_line_takes_a_file(file, tmp_path):
    done = run_here("truncate", file, "--keep", 2, "--save", tmp_path / "smaller", "--dtype", "bfloat16")
    assert done.returncode == 0, done.stderr
    assert ls.load(tmp_path / "smaller").depth == 2
    assert json.loads((tmp_path / "smaller" / "config.json").read_text())["dtype"] == "bfloat16"
    file.write_bytes(file.read_bytes()[:-100])
    broken = run_here("models", file)
    assert broken.returncode == 2
    assert "100 bytes after the file does): it is damaged" in " ".join(broken.stderr.split())
    assert "Traceback" not in broken.stderr


def test_damaged_headers_end_in_a_sentence(file):
    whole = np.frombuffer(file.read_bytes(), np.uint8)
    generator, refused = np.random.default_rng(1), 0
    for _ in range(25):
        damaged = whole.copy()
        damaged[generator.integers(0, 700, 2)] = generator.integers(0, 256, 2)
        file.write_bytes(damaged.tobytes())
        try:
            ls.load(file)
        except ModelError:
            refused += 1
    assert refused > 15
