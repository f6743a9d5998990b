"""A whole one of every kind of input, made once by children."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from .harness import World, ended
from .scene import SMALL
from .subjects import ALIGNERS, TEXTS, extract, model, use
from .traps import Trap, die


def make_wholes(world: World) -> None:
    """A whole one of everything, by children; the models and records are there already."""
    world.clean()
    for act in (_make_data, _make_objects, _make_trainings):
        end = ended(lambda _, act=act: (use(world), act(world.seeds))[1], seconds=120)
        assert end.code == 0, end.err
    shutil.move(world.work / "home", world.seeds / "store")
    world.clean()
    calls = ended(lambda say: _stored(world, 0, say)).said[0]
    world.clean()
    assert ended(lambda say: _stored(world, calls - 4, say)).code == -9
    shutil.move(world.work / "home", world.seeds / "unfinished")
    world.clean()


def _stored(world: World, call: int, say: Callable[[Any], None]) -> None:
    use(world)
    trap = Trap(call, die)
    extract()
    say(trap.count)


def _make_data(seeds: Path) -> None:
    import pandas

    rows = [(text, ("file", "list")[i % 2]) for i, text in enumerate(TEXTS)]
    table = pandas.DataFrame(rows, columns=["text", "label"])
    tree = "".join(
        f"# sent_id = {i}\n# text = {text}\n"
        + "".join(f"{k}\t{w}{chr(9) * 8}_\n" for k, w in enumerate(text.split(), 1))
        + "\n"
        for i, text in enumerate(TEXTS)
    )
    texts = {
        "csv": table.to_csv(index=False),
        "tsv": table.to_csv(index=False, sep="\t"),
        "jsonl": "".join(json.dumps({**row, "words": row["text"].split()}) + "\n" for row in table.to_dict("records")),
        "conllu": tree,
        "txt": "\n".join(TEXTS) + "\n",
    }
    for ending in (*texts, "parquet", "csv.gz", "jsonl.gz"):
        (seeds / f"data-{ending}").mkdir()
        file = seeds / f"data-{ending}" / f"rows.{ending}"
        if ending == "parquet":
            table.to_parquet(file)
        elif ending.endswith(".gz"):
            file.write_bytes(gzip.compress(texts[ending[:-3]].encode(), mtime=0))
        else:
            file.write_text(texts[ending], encoding="utf-8")


def _make_objects(seeds: Path) -> None:

    import numpy as np

    import layerscope as ls
    from tests.helpers.checkpoints import save_sentence_transformer
    from tests.helpers.figures import record_of_every_kind
    from tests.helpers.models import random_network, word_tokenizer

    network = random_network("bert", labels=2, **SMALL)
    network.save_pretrained(seeds / "sharded", max_shard_size="12KB")
    word_tokenizer("bert").save_pretrained(seeds / "sharded")
    save_sentence_transformer(seeds / "embeddings", prompt="the list ")
    reps = extract()
    reps.save(seeds / "reps")
    ls.save(ls.truncate(model(), 1), seeds / "cut")
    x = np.random.default_rng(0).normal(size=(40, 4))
    y = x @ np.random.default_rng(1).normal(size=(4, 4))
    for method in ALIGNERS:
        steps = {"steps": 3} if method in ("inn", "mlp") else {}
        ls.align(x, y, method=method, **steps).save(seeds / "aligners" / f"{method}.safetensors")
    moments = ls.Moments([4, 4], debiased=True)
    moments.update([_tensor(x), _tensor(y)])
    moments.save(seeds / "moments")
    (seeds / "similarity").mkdir()
    ls.compare(reps).save(seeds / "similarity" / "cka.parquet")
    record = record_of_every_kind("few")
    ls.write_record(seeds / "few-record", replace(record, figures=[record.figures[0], *record.figures[2:]]))


def _tensor(rows: Any) -> Any:
    import torch

    return torch.as_tensor(rows)


def _make_trainings(seeds: Path) -> None:
    import layerscope as ls

    for method in ("lora", "adapter"):
        options = {"max_steps": 1, "batch": 4, "max_length": 16, "out": seeds / f"training-{method}"}
        ls.tune(model(), str(seeds / "new-words"), method=method, **options)
    shutil.rmtree(Path(os.environ["LAYERSCOPE_HOME"]))
    extract()
