"""A few kilobytes of made text with something to learn in it, its vocabulary, and recipes shrunk to fit it."""

from __future__ import annotations

from pathlib import Path

import pretrain
import pytest
import yaml
from nursery.recipes import FOLDER

from tests.helpers.data import GARDEN_LENGTH, GARDEN_SIZES, animal_articles


@pytest.fixture(scope="session")
def shard(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "animals.txt"
    path.write_text(animal_articles(400), encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tokenizer_folder(shard, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("vocabulary") / "tokenizer"
    pretrain.main(["vocabulary", str(shard), "--size", "160", "--every", "1", "--out", str(folder)])
    return folder


@pytest.fixture(scope="session")
def trained(shard, tokenizer_folder, tmp_path_factory):
    """`trained(family, name, *options)`: the folder of a small model of the family, trained by the script itself."""
    root = tmp_path_factory.mktemp("garden")

    def train(family: str, name: str, *options: str, **changes) -> Path:
        recipe = yaml.safe_load((FOLDER / f"{family}.yaml").read_text(encoding="utf-8"))
        recipe["config"] |= GARDEN_SIZES[family]
        if recipe.get("generator"):
            recipe["generator"] |= {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 1}
        recipe |= {"name": family, "length": GARDEN_LENGTH, "batch": 16, "learning_rate": 5e-3} | changes
        path = root / f"{family}-{name}.yaml"
        path.write_text(yaml.safe_dump(recipe), encoding="utf-8")
        places = ["--tokenizer", str(tokenizer_folder), "--cache", str(root / "cache"), "--workers", "1"]
        pretrain.main(["train", str(path), str(shard), *places, "--out", str(root / name), "--device", "cpu", *options])
        return root / name

    return train
