"""What inputs there are: a whole one of each kind, the files of it that are damaged, and how it is opened."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from .harness import World, Wrong, command

TEXTS = ["the file is good", "a list of values", "not this file", "that string and the list"]
EMBEDDING_FILES = (
    *("modules.json", "1_Pooling/config.json", "2_Dense/config.json", "2_Dense/model.safetensors"),
    *("sentence_bert_config.json", "config_sentence_transformers.json"),
)
ALIGNERS = ("mean", "linear", "procrustes", "cca", "svcca", "inn", "mlp")


@dataclass(frozen=True)
class Subject:
    """A folder of whole files, those that are damaged, and what is done with the folder."""

    name: str
    folder: str
    files: tuple[str, ...]
    act: Callable[[Path], None]
    weight: int = 1  # how often it comes up


def subjects() -> list[Subject]:
    data = ["csv", "tsv", "jsonl", "parquet", "conllu", "txt", "csv.gz", "jsonl.gz"]
    checkpoint = ("config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors")
    return [
        *(Subject(ending, f"data-{ending}", (f"rows.{ending}",), open_data, 2) for ending in data),
        *(Subject(name, "model", (name,), open_checkpoint, 1 + 3 * (name == "config.json")) for name in checkpoint),
        Subject("index", "sharded", ("model.safetensors.index.json",), open_checkpoint, 2),
        Subject("embeddings", "embeddings", EMBEDDING_FILES, open_embeddings, 3),
        Subject("lineage", "cut", ("layerscope.json",), open_checkpoint),
        Subject("card", "cut", ("README.md",), open_checkpoint),
        Subject(
            "representations", "reps", ("representations.json", "shard-00000.safetensors"), open_representations, 2
        ),
        Subject("aligners", "aligners", tuple(f"{name}.safetensors" for name in ALIGNERS), open_aligners, 2),
        Subject("moments", "moments", ("moments.json", "moments.safetensors"), open_moments, 2),
        Subject("similarity", "similarity", ("cka.parquet",), open_similarity),
        *(
            Subject(f"training {m}", f"training-{m}", ("*.json", "*.safetensors"), open_checkpoint)
            for m in ("lora", "adapter")
        ),
        Subject("record", "new-record", ("record.json", "*.parquet"), open_record, 3),
        Subject("figures", "few-record", ("record.json", "*.parquet"), open_figures),
        Subject("store", "store", ("**/*",), open_store, 2),
        Subject("unfinished store", "unfinished", ("**/*",), open_store, 2),
    ]


def finite(name: str, values: Any) -> None:
    """Raise where an array of numbers holds one that is not finite."""
    import numpy as np

    values = np.asarray(values)
    if values.dtype.kind == "f" and not np.isfinite(values).all():
        raise Wrong(f"not finite: {name}")


@cache
def model() -> Any:
    import layerscope as ls

    return ls.load(_SEEDS / "model")


_SEEDS = Path()


def use(world: World) -> None:
    """Where the whole ones are: called in a child."""
    global _SEEDS  # noqa: PLW0603  (a child has one world)
    _SEEDS = world.seeds
    world.enter()


def _few() -> Any:
    import pandas

    import layerscope as ls

    return ls.task(pandas.DataFrame({"text": TEXTS, "label": ["file", "list"] * 2}))


def _read_states(model: Any, task: Any, split: str | None = None) -> None:
    import layerscope as ls

    reps = ls.extract(model, task, split=split, limit=3, pool="mean", max_length=32)
    for layer in reps.layers:
        finite("a layer of what was extracted", reps[layer])


def open_data(folder: Path) -> None:
    import layerscope as ls

    task = ls.task(str(next(folder.iterdir())))
    for split in task.splits:
        examples = task.split(split)
        if examples.labels is not None:
            finite("a label", examples.labels)
        _read_states(model(), task, split)


def open_checkpoint(folder: Path) -> None:
    import layerscope as ls

    model = ls.load(str(folder))
    _read_states(model, _few())
    finite("a score", float(ls.evaluate(model, _few(), max_length=32, all_rows=True)))


def open_embeddings(folder: Path) -> None:
    """Score pairs by their embeddings, and cut the folder on disk."""
    import pandas

    import layerscope as ls

    pairs = pandas.DataFrame({"text": TEXTS, "text_pair": TEXTS[::-1], "label": [0.5, 1.0, 1.5, 3.0]})
    finite("a score", float(ls.evaluate(str(folder), ls.task(pairs), max_length=32, all_rows=True)))
    ls.cut_folder(folder, ls.LayerPlan([1]), folder.parent / "small")


def open_representations(folder: Path) -> None:
    import layerscope as ls

    reps = ls.Representations.load(folder)
    for layer in reps.layers:
        finite("a layer", reps[layer])
    if reps.labels is not None:
        finite("a label", reps.labels)
    reps.summary()
    list(reps.rows.keys())
    check_reasons(ls.compare(reps))


def open_aligners(folder: Path) -> None:
    import numpy as np

    import layerscope as ls

    for file in folder.iterdir():
        aligner = ls.load_aligner(file)
        rows = np.random.default_rng(0).normal(size=(5, 4))
        finite("a mapped row", aligner(rows))
        if not aligner.no_inverse:
            finite("a row mapped back", aligner.inverse(rows))


def open_moments(folder: Path) -> None:
    import layerscope as ls

    moments = ls.Moments.load(folder)
    for i, _ in enumerate(moments.widths):
        finite("a mean", moments.mean(i))
        finite("a scatter", moments.scatter(0, i))


def check_reasons(similarity: Any) -> None:
    """Raise where a value is undefined and nothing says why."""
    import numpy as np

    for cell in np.argwhere(~np.isfinite(np.asarray(similarity.values, dtype=float))):
        if not similarity.reasons.get(tuple(map(int, cell))):
            raise Wrong("not finite: a similarity, and no reason for it")


def open_similarity(folder: Path) -> None:
    import layerscope as ls

    similarity = ls.Similarity.load(folder / "cka.parquet")
    check_reasons(similarity)
    similarity.figures()
    len(similarity.frame)


def open_record(folder: Path) -> None:
    import layerscope as ls

    ls.read_record(folder)
    ls.report(folder, folder.parent / "page.html")


def open_figures(folder: Path) -> None:
    import layerscope as ls

    ls.paper_figures(folder, folder.parent / "figures", format="svg")


def open_store(folder: Path) -> None:
    """What was stored is found, or made again; it is the same either way."""
    import torch

    import layerscope as ls

    os.environ["LAYERSCOPE_HOME"] = str(folder)
    try:
        reps, whole = extract(), ls.Representations.load(_SEEDS / "reps")
        if any(not torch.equal(reps[layer], whole[layer]) for layer in whole.layers):
            raise Wrong("another value from a damaged store")
        for words in ("ls", "verify"):
            command("cache", words)
    finally:
        os.environ["LAYERSCOPE_HOME"] = str(folder.parent / "home")


def extract() -> Any:
    import layerscope as ls

    return ls.extract(model(), str(_SEEDS / "new-words"), pool="mean")


def files_of(subject: Subject, folder: Path) -> Iterable[Path]:
    """The files that may be damaged."""
    return sorted({file for pattern in subject.files for file in folder.rglob(pattern) if file.is_file()})
