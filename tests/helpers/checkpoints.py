"""Checkpoints on disk, in every layout that is read, and a small hub on this machine that serves them."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlparse

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModelForSequenceClassification

import layerscope as ls
from tests.helpers.models import random_network, save_random


def write_json(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))


def save_sentence_transformer(
    path, *, modes=("mean",), dense=True, normalize=True, inside="", prompt="", include_prompt=True
):
    """A folder as sentence-transformers saves one, around a small random BERT."""
    save_random(path / inside, "bert", "encoder")
    kinds = ["Transformer", "Pooling", *["Dense"] * dense, *["Normalize"] * normalize]
    places = [inside, *(f"{k}_{kind}" for k, kind in enumerate(kinds) if k)]
    listed = [
        {"idx": k, "name": str(k), "path": place, "type": f"sentence_transformers.models.{kind}"}
        for k, (place, kind) in enumerate(zip(places, kinds, strict=True))
    ]
    write_json(path / "modules.json", listed)
    flags = {
        **{f"pooling_mode_{old}": mode in modes for old, mode in (("cls_token", "cls"), ("max_tokens", "max"))},
        **{f"pooling_mode_{mode}_tokens": mode in modes for mode in ("mean", "weightedmean")},
        "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens" in modes,
        "pooling_mode_lasttoken": "lasttoken" in modes,
    }
    pooling = {"word_embedding_dimension": 32, **flags, "include_prompt": include_prompt}
    write_json(path / "1_Pooling" / "config.json", pooling)
    if dense:
        width = 32 * len(modes)
        activation = "torch.nn.modules.activation.Tanh"
        settings = {"in_features": width, "out_features": 16, "bias": True, "activation_function": activation}
        write_json(path / "2_Dense" / "config.json", settings)
        generator = torch.Generator().manual_seed(0)
        weights = {
            "linear.weight": torch.randn(16, width, generator=generator),
            "linear.bias": torch.randn(16, generator=generator),
        }
        save_file(weights, path / "2_Dense" / "model.safetensors")
    if normalize:
        (path / f"{2 + dense}_Normalize").mkdir()
    write_json(path / inside / "sentence_bert_config.json", {"max_seq_length": 9, "do_lower_case": False})
    about = {"prompts": {"query": prompt}, "default_prompt_name": "query" if prompt else None}
    write_json(path / "config_sentence_transformers.json", about)
    return path


REMOVED = object()
_WRONG = (REMOVED, None, True, 0, -1, 3, 1.5, 1e400, "x", "", [], [1], {}, {"a": 1})
_FIELDS = {
    "modules.json": ["0.path", "0.type", "1.path", "1.type", "2.type"],
    "1_Pooling/config.json": ["word_embedding_dimension", "pooling_mode_cls_token", "pooling_mode", "include_prompt"],
    "2_Dense/config.json": ["in_features", "out_features", "bias", "activation_function", "use_residual"],
    "3_Normalize/config.json": ["module_input_name"],
    "sentence_bert_config.json": ["max_seq_length", "do_lower_case"],
    "config_sentence_transformers.json": ["prompts", "default_prompt_name"],
}
_MORE = [
    *(("modules.json", "1.path", path) for path in ("1_Pooling/", "../m/1_Pooling", "a\0b", "x" * 300, "2_Dense")),
    *(("modules.json", "1.type", kind) for kind in ("my.Pooling", "sentence_transformers.models.CNN", "Pooling")),
    ("1_Pooling/config.json", "pooling_mode", ["cls", "max"]),
    ("1_Pooling/config.json", "pooling_mode", ["cls"] * 1000),
    ("1_Pooling/config.json", "pooling_mode", "cls"),
    ("1_Pooling/config.json", "pooling_mode_cls_token", True),
    ("1_Pooling/config.json", "pooling_mode_middle_token", True),
    *(
        ("2_Dense/config.json", "activation_function", f"torch.{name}")
        for name in ("nn.Linear", "nn.ReLU", "nn.Module")
    ),
    *(("2_Dense/config.json", "activation_function", f"torch.{name}") for name in ("nn.PReLU", "nn.RReLU", "tanh")),
    ("2_Dense/config.json", "activation_function", "torch.nn.modules.linear.Tanh"),
    ("2_Dense/config.json", "activation_function", "my.Activation"),
    ("2_Dense/config.json", "module_input_name", "token_embeddings"),
    *(("sentence_bert_config.json", "max_seq_length", most) for most in (1, 2, 1 << 20, 1 << 62, 10**50)),
    ("config_sentence_transformers.json", "prompts", {"a": None, "query": "list "}),
    ("config_sentence_transformers.json", "prompts", {"query": 3}),
    ("config_sentence_transformers.json", "default_prompt_name", "query"),
]
BROKEN_EMBEDDINGS = [
    *((file, field, value) for file, fields in _FIELDS.items() for field in fields for value in _WRONG),
    *_MORE,
]


def break_embedding(folder, file, field, value):
    """Put a value in the place of a field of a file of sentence-transformers, or take the field away."""
    path = folder / file
    content = json.loads(path.read_text()) if path.is_file() else {}
    place, _, name = field.rpartition(".")
    holder = content[int(place)] if place else content
    if value is REMOVED:
        holder.pop(name, None)
    else:
        holder[name] = value
    write_json(path, content)


GGUF_SIZES = {
    "num_hidden_layers": 3,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
GGUF_WORDS = ["fi", "le", "file", "li", "st", "list", "an", "and", "th", "the"]
GGUF_MERGES = ["f i", "l e", "fi le", "l i", "s t", "li st", "a n", "an d", "t h", "th e"]
GGUF_PARTS = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


def gguf_tokens():
    from transformers.convert_slow_tokenizer import bytes_to_unicode

    return ["<|end|>", *bytes_to_unicode().values(), *GGUF_WORDS]


def gguf_network(seed=0, **options):
    return random_network("llama", "next", seed=seed, **{"vocab_size": len(gguf_tokens()), **GGUF_SIZES, **options})


def gguf_name(key):
    """A tensor's name in llama.cpp."""
    whole = {"model.embed_tokens": "token_embd", "model.norm": "output_norm", "lm_head": "output"}
    stem = key.removesuffix(".weight")
    if stem in whole:
        return f"{whole[stem]}.weight"
    _, _, block, part = stem.split(".", 3)
    return f"blk.{block}.{GGUF_PARTS[part]}.weight"


def rotary_order(weights, heads):
    """Rows of queries and keys in the order of llama.cpp's rotary embeddings."""
    return weights.reshape(heads, 2, -1, weights.shape[1]).swapaxes(1, 2).reshape(weights.shape)


def write_gguf(
    path, net=None, kind="F32", architecture="llama", tokenizer=True, drop=(), extra=None, words=(), **metadata
):
    """The network as a GGUF file; matrices are quantised as `kind` says. Gives the path."""
    import gguf

    net = gguf_network(vocab_size=len(gguf_tokens()) + len(words)) if net is None else net
    config = net.config
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    for key, value in metadata.items():
        kinds = {bool: writer.add_bool, int: writer.add_uint32, str: writer.add_string}
        kinds[type(value)](key.replace("__", "."), value)
    if tokenizer:
        writer.add_tokenizer_model("gpt2")
        writer.add_token_list([*gguf_tokens(), *words])
        writer.add_token_types([3] + [1] * (len(gguf_tokens()) - 1 + len(words)))
        writer.add_token_merges(GGUF_MERGES)
        writer.add_bos_token_id(0)
        writer.add_eos_token_id(0)
    for key, tensor in net.state_dict().items():
        if key in drop or (key == "lm_head.weight" and config.tie_word_embeddings):
            continue
        values, quantisation = tensor.numpy(), gguf.GGMLQuantizationType["F32"]
        if "q_proj" in key or "k_proj" in key:
            values = rotary_order(values, config.num_attention_heads if "q_proj" in key else config.num_key_value_heads)
        if values.ndim == 2:
            quantisation = gguf.GGMLQuantizationType[kind]
        writer.add_tensor(gguf_name(key), gguf.quants.quantize(values, quantisation), raw_dtype=quantisation)
    for name, count in (extra or {}).items():
        writer.add_tensor(name, np.ones(count, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def save_tuned_minilm(folder: Path, steps: int = 100, seed: int = 0) -> None:
    """A classifier of docstrings; embeddings and blocks 1 and 2 stay as they were, which is quicker."""
    base, task = ls.load("demo:minilm"), ls.task("pydocs")
    examples = task.split("train")
    names = dict(enumerate(task.label_names))
    torch.manual_seed(seed)
    network = AutoModelForSequenceClassification.from_pretrained(base.network.name_or_path, num_labels=len(names))
    network.config.id2label, network.config.label2id = names, {v: k for k, v in names.items()}
    for frozen in (network.bert.embeddings, *network.bert.encoder.layer[:2]):
        frozen.requires_grad_(False)
    optimizer = torch.optim.AdamW([p for p in network.parameters() if p.requires_grad], 3e-4)
    generator = torch.Generator().manual_seed(seed)
    network.train()
    for _ in range(steps):
        chosen = torch.randint(len(examples), (16,), generator=generator).tolist()
        batch = base.tokenizer(
            [examples.texts[i] for i in chosen], padding=True, truncation=True, max_length=20, return_tensors="pt"
        )
        network(**batch, labels=torch.tensor(examples.labels[chosen])).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    network.eval().save_pretrained(folder)
    base.tokenizer.save_pretrained(folder)


HUB_SHA = "0123456789abcdef0123456789abcdef01234567"
HUB_TOKEN = "hf_of_the_small_hub"
HUB_REVISIONS = ("main", "v2", HUB_SHA)


class _Hub(BaseHTTPRequestHandler):
    root: Path
    requests: list[str]
    private: set[str]  # repositories that only who has a token may read

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        asked = self.rfile.read(length)
        self.answer(asked=asked)

    def log_message(self, *_: object) -> None: ...

    def answer(self, body: bool = True, asked: bytes = b"") -> None:
        path = unquote(urlparse(self.path).path)
        self.requests.append(f"{self.command} {path}")
        if match := re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)(?:/revision/([^/]+))?", path):
            return self.info(*match.groups())
        if match := re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)/tree/([^/]+)(?:/(.*))?", path):
            return self.tree(*match.groups())
        if match := re.fullmatch(r"/api/(models|datasets)/([^/]+/[^/]+)/paths-info/([^/]+)", path):
            return self.paths(*match.groups(), asked)
        if match := re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            kind, repository, revision, file = match.groups()
            return self.file("datasets" if kind else "models", repository, revision, file, body)
        return self.write(path, asked)

    def write(self, path: str, asked: bytes) -> None:
        if path in ("/api/whoami-v2", "/api/repos/create", "/api/validate-yaml"):
            return self.created(path, json.loads(asked or b"{}"))
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/(preupload|commit)/main", path):
            return self.commit(*match.groups(), asked)
        return self.missing("EntryNotFound")

    def created(self, path: str, asked: dict) -> None:
        """Who is asking, and new repositories: for those with the token TOKEN."""
        if path.endswith("validate-yaml"):
            return self.json({"errors": [], "warnings": []})
        if self.headers.get("Authorization") != f"Bearer {HUB_TOKEN}":
            return self.missing("Unauthorized", 401)
        if path.endswith("whoami-v2"):
            return self.json({"name": "me", "type": "user", "orgs": []})
        name = f"{asked.get('organization') or 'me'}/{asked['name']}"
        url = f"http://{self.headers['Host']}/{name}"
        if (self.root / "models" / name).exists():
            return self.json({"error": "You already created this model repo", "url": url}, 409)
        (self.root / "models" / name).mkdir(parents=True)
        if asked.get("private") or asked.get("visibility") == "private":
            self.private.add(name)
        return self.json({"url": url})

    def commit(self, repository: str, step: str, asked: bytes) -> None:
        """Files into a repository, all of them as ordinary ones."""
        folder = self.root / "models" / repository
        if self.headers.get("Authorization") != f"Bearer {HUB_TOKEN}" or not folder.is_dir():
            return self.missing("RepoNotFound", 401)
        if step == "preupload":
            names = [file["path"] for file in json.loads(asked)["files"]]
            return self.json(
                {"files": [{"path": name, "uploadMode": "regular", "shouldIgnore": False} for name in names]}
            )
        for part in map(json.loads, asked.splitlines()):
            if part["key"] == "deletedFile":
                (folder / part["value"]["path"]).unlink()
            if part["key"] == "file":
                path = folder / part["value"]["path"]
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(base64.b64decode(part["value"]["content"]))
        return self.json(
            {"commitUrl": f"http://{self.headers['Host']}/{repository}/commit/{HUB_SHA}", "commitOid": HUB_SHA}
        )

    def folder(self, kind: str, repository: str, revision: str | None) -> Path | None:
        folder = self.root / kind / repository
        hidden = repository in self.private and self.headers.get("Authorization") != f"Bearer {HUB_TOKEN}"
        if not folder.is_dir() or hidden:
            self.missing("RepoNotFound", 401)
            return None
        if revision is not None and revision not in HUB_REVISIONS:
            self.missing("RevisionNotFound")
            return None
        return folder

    def info(self, kind: str, repository: str, revision: str | None) -> None:
        if folder := self.folder(kind, repository, revision):
            names = [{"rfilename": str(p.relative_to(folder))} for p in _files(folder)]
            self.json(
                {
                    "_id": "1",
                    "id": repository,
                    "sha": HUB_SHA,
                    "siblings": names,
                    "private": repository in self.private,
                    "tags": [],
                }
            )

    def tree(self, kind: str, repository: str, revision: str, inside: str | None) -> None:
        if folder := self.folder(kind, repository, revision):
            start = folder / (inside or "")
            recursive = "recursive=true" in self.path.lower()
            self.json([_entry(folder, p) for p in sorted(start.rglob("*") if recursive else start.glob("*"))])

    def paths(self, kind: str, repository: str, revision: str, asked: bytes) -> None:
        if folder := self.folder(kind, repository, revision):
            from urllib.parse import parse_qs

            try:
                paths = json.loads(asked)["paths"]
            except ValueError:
                paths = parse_qs(asked.decode())["paths"]
            found = []
            for name in [paths] if isinstance(paths, str) else paths:
                if (folder / name).exists():
                    found.append(_entry(folder, folder / name))
            self.json(found)

    def file(self, kind: str, repository: str, revision: str, name: str, body: bool) -> None:
        folder = self.folder(kind, repository, revision)
        if folder is None:
            return
        path = folder / name
        if not path.is_file():
            return self.missing("EntryNotFound")
        data = path.read_bytes()
        self.send_response(200)
        self.send_header("ETag", f'"{_hash(path)}"')
        self.send_header("X-Repo-Commit", HUB_SHA)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if body:
            self.wfile.write(data)
        return None

    def json(self, value: object, status: int = 200) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def missing(self, code: str, status: int = 404) -> None:
        self.send_response(status)
        self.send_header("X-Error-Code", code)
        self.send_header("Content-Length", "0")
        self.end_headers()


def _files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file())


def _hash(path: Path) -> str:
    return hashlib.sha1(path.read_bytes()).hexdigest()


def _entry(folder: Path, path: Path) -> dict[str, object]:
    name = str(path.relative_to(folder))
    if path.is_dir():
        return {"type": "directory", "path": name, "size": 0, "oid": hashlib.sha1(name.encode()).hexdigest()}
    return {"type": "file", "path": name, "size": path.stat().st_size, "oid": _hash(path)}


@contextmanager
def serve_hub(root: Path) -> Iterator[tuple[str, list[str]]]:
    """The address of a hub that serves `root/models/ORG/NAME` and `root/datasets/ORG/NAME`, and what it was asked."""
    requests: list[str] = []
    handler = type("Hub", (_Hub,), {"root": root, "requests": requests, "private": set()})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", requests
    finally:
        server.shutdown()
        server.server_close()


def numbers_in(folder):
    """How many numbers the weight files of a folder hold."""
    files = [load_file(path) for path in folder.glob("*.safetensors")]
    return sum(tensor.numel() for tensors in files for tensor in tensors.values())
