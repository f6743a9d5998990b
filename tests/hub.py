"""A small hub on this machine: serves folders as model and data set repositories, as the real one does."""

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

SHA = "0123456789abcdef0123456789abcdef01234567"
TOKEN = "hf_of_the_small_hub"
REVISIONS = ("main", "v2", SHA)


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
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
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
        if self.headers.get("Authorization") != f"Bearer {TOKEN}" or not folder.is_dir():
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
        return self.json({"commitUrl": f"http://{self.headers['Host']}/{repository}/commit/{SHA}", "commitOid": SHA})

    def folder(self, kind: str, repository: str, revision: str | None) -> Path | None:
        folder = self.root / kind / repository
        hidden = repository in self.private and self.headers.get("Authorization") != f"Bearer {TOKEN}"
        if not folder.is_dir() or hidden:
            self.missing("RepoNotFound", 401)
            return None
        if revision is not None and revision not in REVISIONS:
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
                    "sha": SHA,
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
        self.send_header("X-Repo-Commit", SHA)
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
def serving(root: Path) -> Iterator[tuple[str, list[str]]]:
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
