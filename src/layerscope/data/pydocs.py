"""The task `pydocs`: first paragraphs of docstrings in the standard library, labelled with the part of the library.

They are real English on every machine with Python, and no text is shipped with the package.
"""

from __future__ import annotations

import ast
import platform
import random
import re
import sysconfig
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from layerscope.data.formats import Table, frame_tables
from layerscope.errors import DataError
from layerscope.store import Artifact

VERSION = 2  # raise it when the code below comes to make other rows
SHARES = {"train": 0.7, "validation": 0.15, "test": 0.15}
_LEAST, _MOST = 5, 60  # words
_ALIKE = 0.6  # Jaccard similarity of word sets from which two docstrings are near-duplicates
_LEFT_OUT = {"test", "tests", "idle_test", "site-packages", "dist-packages", "__pycache__"}
_WORD = re.compile(r"\w+|[^\w\s]")

Sentence = tuple[str, str, str]  # label, module, text


class PydocsSource:
    """The source of the three splits, which are made once for each Python and then read from the store."""

    splits = tuple(SHARES)

    def is_here(self, split: str) -> bool:
        return True

    def tables(self, split: str, columns: Sequence[str] | None = None) -> Iterator[Table]:
        import pyarrow.parquet

        path = Pydocs().produce() / f"{split}.parquet"
        return frame_tables(pyarrow.parquet.read_table(path), f"pydocs ({split})", columns)

    def counts(self, split: str, column: str) -> Mapping[Any, int] | None:
        return None


class Pydocs(Artifact):
    """The splits as Parquet files in the store."""

    kind, version, planned = "pydocs", VERSION, False

    def spec(self) -> dict[str, Any]:
        return {"python": edition(), "library": str(_library())}

    def build(self, folder: Path) -> None:
        import pyarrow
        import pyarrow.parquet

        for split, rows in divide(list(sentences(_library()))).items():
            columns = {
                "text": [text for _, _, text in rows],
                "words": [words_of(text) for _, _, text in rows],
                "label": [label for label, _, _ in rows],
                "module": [module for _, module, _ in rows],
            }
            pyarrow.parquet.write_table(pyarrow.table(columns), folder / f"{split}.parquet")


def edition() -> str:
    """Return the name and version of the Python whose docstrings these are: another Python has other rows."""
    return f"{platform.python_implementation()}-{platform.python_version()}"


def words_of(text: str) -> list[str]:
    """Return a text's words and punctuation marks."""
    return _WORD.findall(text)


def _library() -> Path:
    """Return the folder of the running Python's standard library."""
    return Path(sysconfig.get_paths()["stdlib"])


@cache
def _label_of_module() -> dict[str, str]:
    """Return the label of every top-level module that is used, from pydocs.yaml."""
    groups = yaml.safe_load(files("layerscope.data").joinpath("pydocs.yaml").read_text(encoding="utf-8"))
    return {module: label for label, modules in groups.items() for module in modules}


def sentences(library: Path) -> Iterator[Sentence]:
    """Yield every usable first paragraph in the order of files and lines, no text twice.

    Source is parsed and never imported, since importing a module may run anything.
    """
    seen: set[str] = set()
    for path in sorted(library.rglob("*.py")):
        parts = path.relative_to(library).parts
        label = _label_of_module().get(parts[0].removesuffix(".py"))
        if label is None or _LEFT_OUT & set(parts):
            continue
        module = ".".join(parts).removesuffix(".py").removesuffix(".__init__")
        for text in _paragraphs(path):
            if _LEAST <= len(text.split()) <= _MOST and text not in seen:
                seen.add(text)
                yield label, module, text


def _paragraphs(path: Path) -> Iterator[str]:
    """Yield the first paragraph of every docstring in a file."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return  # a few files are meant not to parse
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented) and (docstring := ast.get_docstring(node)):
            yield " ".join(docstring.split("\n\n")[0].split())


def divide(rows: list[Sentence], seed: int = 0) -> dict[str, list[Sentence]]:
    """Return the rows as train, validation and test, with each label's share in each.

    Near-duplicates of a package stay together: a docstring in one split would give away its like in another.
    """
    if len(rows) < 100:
        raise DataError(
            f"pydocs found {len(rows)} docstrings in {_library()}: this Python has no standard library source. "
            "Use a Python that was installed with it."
        )
    by_label: dict[str, list[list[int]]] = defaultdict(list)
    for cluster in near_duplicates(rows):
        by_label[rows[cluster[0]][0]].append(cluster)
    chosen: dict[str, list[int]] = {split: [] for split in SHARES}
    generator = random.Random(seed)
    for label in sorted(by_label):
        clusters = sorted(by_label[label])
        generator.shuffle(clusters)
        clusters.sort(key=len, reverse=True)  # large ones first, so that the small ones even the shares out
        filled = dict.fromkeys(SHARES, 0)
        for cluster in clusters:
            split = min(filled, key=lambda name: filled[name] / SHARES[name])
            filled[split] += len(cluster)
            chosen[split] += cluster
    splits = {split: [rows[i] for i in sorted(indices)] for split, indices in chosen.items()}
    for part in splits.values():
        generator.shuffle(part)  # the first rows are a sample, as in published data sets
    return splits


def near_duplicates(rows: list[Sentence]) -> list[list[int]]:
    """Return clusters of rows of one top-level package whose word sets are alike; most have a single row."""
    packages: dict[tuple[str, str], list[int]] = defaultdict(list)
    bags = [frozenset(words_of(text.lower())) for _, _, text in rows]
    for i, (label, module, _) in enumerate(rows):
        packages[label, module.split(".")[0]].append(i)
    root = list(range(len(rows)))

    def find(i: int) -> int:
        while root[i] != i:
            root[i] = i = root[root[i]]
        return i

    for members in packages.values():
        for place, i in enumerate(members):
            for j in members[:place]:
                common = len(bags[i] & bags[j])
                if common >= _ALIKE * (len(bags[i]) + len(bags[j]) - common):
                    root[find(i)] = find(j)
    clusters: dict[int, list[int]] = defaultdict(list)
    for i in range(len(rows)):
        clusters[find(i)].append(i)
    return list(clusters.values())
