"""Tiny models and data, made once, and every command that writes, as it is run on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .harness import World, ended

SMALL = {"num_hidden_layers": 2, "hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 8}
_QUICK = "--max-steps 2 --batch 8 --max-length 16"

# Every command that writes. {task} and {record} are others in an earlier run, so that old and new can be told apart.
_STEP = "--steps 1 --batch 8 --max-length 16"
_LOSE_ANY = "--tolerance 1 --confidence 0"
COMMANDS = {
    "extract": "extract {model} --task {task} --pool mean -o {out}",
    "compare": "compare {model} {other} --task {task} --pool mean --measure cka -o {out}",
    "localization": "localization {model} --task {task} -o {out}",
    "influence": "influence {model} --task {task} -o {out}",
    "evaluate": "evaluate {model} --task {task} -o {out}",
    "truncate": "truncate {model} --task {task} --curve -o {out}",
    "truncate --save": "truncate {model} --task {task} --keep 1 --save {save}",
    "skip": "skip {model} --task {task} --map -o {out}",
    "skip --save": "skip {model} --task {task} --blocks 2 --save {save} -o {out}",
    "advise": f"advise {{model}} --task {{task}} {_LOSE_ANY} --evaluations 0 --max-span 1 --save {{save}} -o {{out}}",
    "specialty": "specialty {model} --task {task} -o {out}",
    "align": "align {model} {other} --task {task} --layers 1 --methods linear --train 16 --test 16 -o {out}",
    "inject": "inject {model} {other} --task {task} --layers 1 --methods linear --train 16 -o {out}",
    "advise --heal": f"advise {{model}} --task {{task}} --rules last --no-timed {_LOSE_ANY} --heal 1 -o {{out}}",
    "heal": f"heal {{model}} --without 1 --task {{task}} {_STEP} -o {{out}}",
    "tune": f"tune {{model}} --task {{task}} {_QUICK} -o {{out}}",
    "tune --method lora": f"tune {{model}} --task {{task}} --method lora {_QUICK} -o {{out}}",
    "tune --study": f"tune {{model}} --task {{task}} --study --specialty-layer 1 {_QUICK} -o {{out}}",
    "strategies": "strategies {model} --task {task} --specialty-layer 1 -o {out}",
    "reproduce": "reproduce ren2023 --only norms --models {model} --tasks {task} --profile smoke -o {out}",
    "report": "report {record} -o {out}/page.html",
    "figures": "figures {record} --format png -o {out}",
    "cache rm": "cache rm --all",
}
READING = {
    "measures": "prints a list",
    "tasks": "prints lists and counts",
    "models": "prints what a model is",
    "cache ls": "prints a list",
    "cache verify": "prints what it read; it runs after every kill",
    "rank": "prints a table; its record is written as those of the other commands are",
    "study": "goes on where it was, so that old and new stand side by side; tests/recipes/test_study.py stops it",
    "demo": "its steps are the functions behind these commands, on a larger model; tests/cli/test_demo.py kills it",
}


def names_of_commands() -> list[str]:
    """Every command of the program, groups spelled out."""
    import typer

    from layerscope.cli import app

    names = []
    group: Any = typer.main.get_command(app)
    for name in group.list_commands(None):
        found = group.get_command(None, name)
        inside = getattr(found, "commands", None)
        names += [name] if inside is None else [f"{name} {part}" for part in inside]
    return names


def words_of(world: World, name: str, earlier: bool = False) -> list[str]:
    """A command as a list of words; `earlier` the same command on other data."""
    which = "old" if earlier else "new"
    places = {
        "model": world.seeds / "model",
        "other": world.seeds / "other",
        "task": world.seeds / f"{which}-words",
        "record": world.seeds / f"{which}-record",
        "out": world.work / "out",
        "save": world.work / "save",
    }
    return [word.format(**places) for word in COMMANDS[name].split()]


def make_seeds(world: World) -> None:
    """Models, data and records in `world.seeds`, by a child."""
    world.seeds.mkdir(parents=True)
    end = ended(lambda _: _make(world.seeds), seconds=120)
    assert end.code == 0, end.err


def _make(seeds: Path) -> None:
    import torch

    import layerscope as ls
    from tests.helpers.figures import record_of_every_kind
    from tests.helpers.models import save_random

    torch.set_num_threads(1)
    for seed, name in enumerate(("model", "other")):
        save_random(seeds / name, "bert", labels=2, seed=seed, **SMALL)
        _name_classes(seeds / name / "config.json")
    for count, which in ((32, "new"), (24, "old")):
        folder = seeds / f"{which}-words"
        folder.mkdir()
        for split in ("train", "validation"):
            rows = [f"the {'file' if i % 2 else 'list'} is {i},{'file' if i % 2 else 'list'}" for i in range(count)]
            (folder / f"{split}.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
        record = record_of_every_kind(which)
        ls.write_record(seeds / f"{which}-record", record)


def _name_classes(path: Path) -> None:
    config = json.loads(path.read_text())
    config |= {"id2label": {"0": "file", "1": "list"}, "label2id": {"file": 0, "list": 1}}
    path.write_text(json.dumps(config, indent=1))
