"""Runs the code of a page as it is written, and keeps the outputs that the page shows true.

python docs/rehearse.py docs/tutorials/compare.md       # run it; exit code 1 if an output is no longer like the page's
python docs/rehearse.py docs/tutorials/*.md --write     # run them and write what came out into the pages

Python blocks of a page share their names, shell blocks run in the same empty folder, in the order of the page. A `text`
block right after a block is its output. A block after the comment `<!-- not run -->` is left alone. A command that a
page needs but does not show stands in a comment, `<!-- run: layerscope compare ... -o out -->`, and is run there.
A picture `images/compare-cka.png` of the page compare.md is the file cka.png that its blocks have left in the folder.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

SKIP = "<!-- not run -->"
LIKE = 0.8  # the share of words, numbers left out, that a new output has in common with the page's
_BLOCK = re.compile(
    rf"(?P<skip>{SKIP}\n+)?^```(?P<language>python|sh)\n(?P<code>.*?)^```$"
    r"(?P<shown>\n\n```text\n(?P<output>.*?)^```$)?|^<!-- run: (?P<hidden>.*?) -->$",
    re.DOTALL | re.MULTILINE,
)
_PICTURE = re.compile(r"!\[[^\]]*\]\((images/[a-z]+-([\w.-]+))\)")
_ENVIRONMENT = {"COLUMNS": "110", "TERM": "dumb", "NO_COLOR": "1", "HF_HUB_OFFLINE": "1", "MPLBACKEND": "agg"}


@dataclass
class Block:
    language: str
    code: str
    output: str | None  # what the page shows
    span: tuple[int, int]  # where that stands in the page


def blocks(text: str) -> Iterator[Block]:
    """The blocks of a page that are run."""
    for match in _BLOCK.finditer(text):
        if match["hidden"]:
            yield Block("sh", match["hidden"], None, match.span("output"))
        elif not match["skip"]:
            yield Block(match["language"], match["code"], match["output"], match.span("output"))


def rehearse(text: str) -> tuple[list[str], dict[str, bytes]]:
    """What each block of a page prints, run in an empty folder, and its pictures. What fails or is not made raises."""
    names: dict[str, object] = {"__name__": "__main__"}
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            said = [_run(block, names) for block in blocks(text)]
            return said, {place: _left(name).read_bytes() for place, name in _PICTURE.findall(text)}
        finally:
            os.chdir(before)


def _left(name: str) -> Path:
    """The file of this name that the blocks left behind, in whatever folder."""
    return next(Path().rglob(name), Path(name))


def _run(block: Block, names: dict[str, object]) -> str:
    if block.language == "sh":
        path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
        command = ["bash", "-ec", block.code]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PATH": path}, check=True)
        return done.stdout
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(compile(block.code, "page", "exec"), names)
    return said.getvalue()


def likeness(shown: str, now: str) -> float:
    """How many words two outputs share, in order, each number read as the same word."""
    words = [re.sub(r"[-+]?\d[\d.,e%-]*", "#", text).split() for text in (shown, now)]
    return difflib.SequenceMatcher(None, *words, autojunk=False).ratio()


def tidy(output: str) -> str:
    lines = [line.rstrip() for line in output.strip("\n").splitlines()]
    return "".join(f"{line}\n" for line in lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pages", type=Path, nargs="+")
    parser.add_argument("--write", action="store_true", help="put what came out into the page")
    arguments = parser.parse_args()
    os.environ.update(_ENVIRONMENT)
    stale = 0
    for page in arguments.pages:
        text = page.read_text(encoding="utf-8")
        said, pictures = rehearse(text)
        found = list(zip(blocks(text), said, strict=True))
        for block, now in reversed(found):
            if block.output is None:
                continue
            if arguments.write:
                text = text[: block.span[0]] + tidy(now) + text[block.span[1] :]
            elif (share := likeness(block.output, now)) < LIKE:
                stale += 1
                print(f"{page}: an output is stale ({share:.0%} alike). Now it is:\n{tidy(now)}", file=sys.stderr)
        if arguments.write:
            page.write_text(text, encoding="utf-8")
            for place, content in pictures.items():
                (page.parent / place).parent.mkdir(exist_ok=True)
                (page.parent / place).write_bytes(content)
        print(f"{page}: {len(found)} blocks ran.")
    return int(stale > 0)


if __name__ == "__main__":
    sys.exit(main())
