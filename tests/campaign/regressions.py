"""What a campaign found: one JSON file per cause under `found/`, each a regression test of its own."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from pathlib import Path
from typing import Any

from .harness import Failure

FOUND = Path(__file__).parent / "found"
_SHORT = 400  # characters of a text that is kept as it is


def packed(content: bytes) -> dict[str, str]:
    """Bytes as JSON has them: a short text as it is, anything else compressed."""
    try:
        text = content.decode()
        if len(text) <= _SHORT and text.encode() == content:
            return {"text": text}
    except UnicodeDecodeError:
        pass
    return {"zlib": base64.b64encode(zlib.compress(content, 9)).decode()}


def unpacked(value: dict[str, str]) -> bytes:
    """The bytes of what `packed` gave."""
    return value["text"].encode() if "text" in value else zlib.decompress(base64.b64decode(value["zlib"]))


def keep(failure: Failure) -> Path | None:
    """Write a failure down; None where the same case is there already."""
    case = json.dumps({"part": failure.part, "subject": failure.subject, **failure.case}, sort_keys=True)
    name = re.sub(r"[^a-z0-9]+", "-", failure.subject.lower()).strip("-")
    path = FOUND / f"{failure.part}-{name}-{hashlib.sha256(case.encode()).hexdigest()[:8]}.json"
    if path.is_file():
        return None
    FOUND.mkdir(exist_ok=True)
    path.write_text(json.dumps({**json.loads(case), "fault": failure.fault}, indent=1) + "\n", encoding="utf-8")
    return path


def kept() -> dict[str, dict[str, Any]]:
    """Every case that was found, by its name."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOUND.glob("*.json"))}
