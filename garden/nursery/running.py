"""`pretrain.py train`: from a recipe and a corpus to a finished model folder."""

from __future__ import annotations

import argparse
import copy
import json
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nursery import cards, checkpoints
from nursery.batches import stream_on
from nursery.corpus import Corpus, tokenise
from nursery.loop import Length, Trainer
from nursery.objectives import Objective
from nursery.recipes import Recipe, build
from nursery.words import number_words, words_on


def run(options: argparse.Namespace) -> None:
    """Train one model and save it. Present means done; what was interrupted goes on."""
    out: Path = options.out
    if (out / cards.CARD).is_file():
        print(f"{out} is finished.")
        return
    if options.steps is None and options.minutes is None:
        raise SystemExit("Say how long to train: --steps N or --minutes M.")
    recipe = Recipe.read(options.recipe)
    device = torch.device(options.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    torch.set_float32_matmul_precision("high")
    tokenizer = _tokenizer(options.tokenizer)
    corpus, on_device = prepared(recipe, options)
    length = Length(options.steps, None if options.minutes is None else 60 * options.minutes)

    def trainer_of(part: Recipe, share: float, folder: Path) -> Trainer:
        folder.mkdir(parents=True, exist_ok=True)
        return Trainer(
            build(part, tokenizer.get_vocab_size(), options.seed, corpus.folder).to(device),
            part,
            options.seed,
            length.part(share),
            on_device(device, corpus.tokens("train")),
            on_device(device, corpus.tokens("held")),
            folder,
            options.batch or part.batch,
            part.compile and device.type == "cuda" if options.compile is None else options.compile,
            options.every,
        )

    trainer = trainer_of(recipe, 1 - recipe.masked_first, out)
    objective = trainer.objective
    started = time.perf_counter()
    steps, seconds = 0, 0.0
    if recipe.first is not None:
        before = trainer_of(recipe.first, recipe.masked_first, out / "first")
        before.run()
        steps, seconds = before.step, before.elapsed
        objective.network.base_model.load_state_dict(before.objective.network.base_model.state_dict())

    def keep(losses: dict[str, float], finished: bool = False) -> None:
        """The model as it is; until the end its card has another name."""
        save_model(objective, recipe, tokenizer, out)
        card = describe(trainer, steps + trainer.step, corpus.meta, losses, options)
        card["masked_steps"] = steps
        card["seconds"] = round(seconds + trainer.elapsed)
        card["seconds_with_compiling"] = round(time.perf_counter() - started)
        cards.write(out, card, finished)

    trainer.keep = keep
    keep(trainer.run(), finished=True)
    checkpoints.remove(out / "checkpoint")
    if (out / "first").is_dir():
        (out / "first" / "log.jsonl").replace(out / "first-log.jsonl")
        shutil.rmtree(out / "first")


def prepared(recipe: Recipe, options: argparse.Namespace) -> tuple[Corpus, Callable[..., Tensor]]:
    """The corpus as a recipe reads it, as tokens or as words, and what puts it on a device."""
    if not recipe.reads_words:
        return Corpus(tokenise(options.shards, options.tokenizer, options.cache, options.workers)), stream_on
    longest = int(recipe.config["char_cnn"]["max_characters_per_token"])
    return Corpus(number_words(options.shards, options.tokenizer, options.cache, longest, options.workers)), words_on


def save_model(objective: Objective, recipe: Recipe, tokenizer: Any, out: Path) -> None:
    """The kept network as a standard checkpoint in half precision, with its tokenizer where it has one."""
    from nursery.vocabulary import finished

    network = copy.deepcopy(objective.kept).to(device="cpu", dtype=torch.float16)
    if recipe.reads_words:
        from layerscope.models.elmo_files import write_folder

        write_folder(network, out)
        return
    for name, value in recipe.tuning.items():
        setattr(network.config, name, value)
    network.save_pretrained(out)
    finished(tokenizer, objective.summary_last, recipe.length).save_pretrained(out)


def describe(
    trainer: Trainer, steps: int, meta: dict[str, Any], losses: dict[str, float], options: argparse.Namespace
) -> dict[str, Any]:
    """What the card says, as data."""
    recipe, network = trainer.recipe, trainer.objective.kept
    return {
        "name": options.out.name,
        "family": recipe.name,
        "architecture": recipe.architecture,
        "objective": recipe.objective,
        "masked_first": recipe.masked_first,
        "parameters": sum(p.numel() for p in network.parameters()),
        "seed": trainer.seed,
        "corpus": {name: meta[name] for name in ("shards", "train", "held")},
        "vocabulary": trainer.objective.vocabulary,
        "sequence_length": recipe.length,
        "batch": trainer.batch,
        "learning_rate": recipe.learning_rate,
        "steps": steps,
        "share": round(trainer.length.share(trainer.step, trainer.elapsed), 4),
        "tokens": steps * trainer.batch * recipe.length,
        "held_out": losses,
        "history": trainer.losses,
        "command": command(options),
        "torch": torch.__version__,
        "device": torch.cuda.get_device_name() if trainer.device.type == "cuda" else "CPU",
    }


def command(options: argparse.Namespace) -> str:
    """The command that made the model, with file names only."""
    length = f"--steps {options.steps}" if options.steps is not None else f"--minutes {options.minutes:g}"
    batch = f" --batch {options.batch}" if options.batch else ""
    compiled = "" if options.compile is None else " --compile" if options.compile else " --no-compile"
    shards = " ".join(f"corpus/{shard.name}" for shard in options.shards)
    return (
        f"python garden/pretrain.py train {Path(options.recipe).name} {shards} --seed {options.seed} {length}{batch}"
        f"{compiled} --out garden/src/layerscope_garden/models/{options.out.name}"
    )


def _tokenizer(folder: Path) -> Any:
    from tokenizers import Tokenizer

    path = folder / "tokenizer.json"
    if not path.is_file():
        raise SystemExit(f"There is no tokenizer in {folder}; make one with: python garden/pretrain.py vocabulary.")
    return Tokenizer.from_file(str(path))


def read_log(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "log.jsonl").read_text(encoding="utf-8").splitlines()]
