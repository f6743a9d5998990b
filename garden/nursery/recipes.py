"""A recipe: one family's architecture, objective and hyperparameters, from a YAML file."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from nursery.bidirectional import Bidirectional
from nursery.objectives import OBJECTIVES, Objective, Replaced
from nursery.vocabulary import CLS_ID, MASK_ID, PAD_ID, SEP_ID

BIDIRECTIONAL = "bidirectional"  # two language models over words; the others are over tokens
FOLDER = Path(__file__).resolve().parent.parent / "recipes"


@dataclass(frozen=True)
class Recipe:
    """Everything that decides a model but its seed, its corpus and how long it is trained."""

    name: str
    architecture: str  # a class of transformers, or Elmo
    objective: str
    config: dict[str, Any]
    tuning: dict[str, Any] = field(default_factory=dict)  # config fields of the saved model (dropout for fine-tuning)
    generator: dict[str, Any] | None = None  # config fields in which the generator differs (replaced tokens only)
    masked_first: float = 0.0  # this share of the training goes into masked tokens before (replaced tokens only)
    share: float = 0.15  # of the tokens are predicted
    length: int = 128  # tokens of a sequence
    batch: int = 512  # sequences of a step
    learning_rate: float = 2e-3
    warmup: float = 0.06  # a share of the whole training
    weight_decay: float = 0.01
    betas: tuple[float, float] = (0.9, 0.98)
    epsilon: float = 1e-6
    clip: float = 1.0
    compile: bool = True

    @property
    def reads_words(self) -> bool:
        """Whether it reads words by their characters, not tokens."""
        return self.objective == BIDIRECTIONAL

    @property
    def first(self) -> Recipe | None:
        """What the network learns before its own objective: masked tokens, in the same blocks."""
        if not self.masked_first:
            return None
        return dataclasses.replace(self, architecture="ElectraForMaskedLM", objective="masked", generator=None)

    @classmethod
    def read(cls, name: str) -> Recipe:
        """The recipe of this name, or in this file."""
        import yaml

        path = Path(name) if name.endswith((".yaml", ".yml")) else FOLDER / f"{name}.yaml"
        if not path.is_file():
            known = ", ".join(sorted(p.stem for p in FOLDER.glob("*.yaml")))
            raise SystemExit(f"There is no recipe {name!r}; known: {known}, or give a YAML file.")
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
        fields = {f.name for f in dataclasses.fields(cls)}
        if unknown := sorted(set(values) - fields):
            raise SystemExit(f"{path.name} has fields that no recipe has: {', '.join(unknown)}.")
        if values.get("objective") not in (*OBJECTIVES, BIDIRECTIONAL):
            allowed = ", ".join((*OBJECTIVES, BIDIRECTIONAL))
            raise SystemExit(f"{path.name} names no objective; allowed: {allowed}.")
        values["betas"] = tuple(values.get("betas", cls.betas))
        return cls(**({"name": path.stem} | values))


def build(recipe: Recipe, vocabulary: int, seed: int, words: Path | None = None) -> Objective:
    """The untrained network with its objective; the seed decides its weights. `words` is the folder of a word cache."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if recipe.objective == BIDIRECTIONAL:
            assert words is not None
            return Bidirectional.of_words(recipe.config, words, vocabulary)
        network = _network(recipe.architecture, recipe.config, vocabulary)
        if recipe.objective == "replaced":
            generator = _network("ElectraForMaskedLM", recipe.config | (recipe.generator or {}), vocabulary)
            return Replaced(network, recipe.share, generator)
        return OBJECTIVES[recipe.objective](network, recipe.share)


def _network(architecture: str, fields: dict[str, Any], vocabulary: int) -> Any:
    import transformers

    opener = getattr(transformers, architecture)
    config = opener.config_class(
        vocab_size=vocabulary,
        pad_token_id=PAD_ID,
        bos_token_id=CLS_ID,
        eos_token_id=SEP_ID,
        cls_token_id=CLS_ID,
        sep_token_id=SEP_ID,
        mask_token_id=MASK_ID,
        **fields,
    )
    network = opener(config)
    network.train()
    return network
