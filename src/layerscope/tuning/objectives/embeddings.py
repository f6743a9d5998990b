"""Objective of embedding models: the whole model's embeddings of texts, which need no labels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from layerscope.cutting.selection_test import of_losses
from layerscope.data import Examples, Task
from layerscope.errors import InputError
from layerscope.evaluation.embedding_similarity import (
    EmbeddingSimilarityEvaluator,
    embedding_of,
    prompt_length,
    read_as,
    single_texts,
)
from layerscope.evaluation.score import Score
from layerscope.extraction.encoding import encode
from layerscope.extraction.forward import padded
from layerscope.extraction.items import Items
from layerscope.extraction.loop import Loop
from layerscope.extraction.pooling import Reading
from layerscope.models import Model
from layerscope.models.architecture import accepted_inputs
from layerscope.models.replay import caches_off
from layerscope.models.sentence_embedding import Embedding
from layerscope.resampling import mean_interval
from layerscope.results import provenance_of
from layerscope.tuning.frozen_cache import PrefixedNetwork
from layerscope.tuning.objectives.base import (
    LOST,
    Distillation,
    Gain,
    Objective,
    Part,
    Teacher,
    gain_between,
    gain_of,
    mean_loss,
)
from layerscope.tuning.trainer import ItemRows

DISTANCES = ("cosine", "mse")
_REAL = "real"  # which positions are not padding; the network's own mask is not given where it takes none


class EmbeddingObjective(Objective):
    """Heals on every text of the data by itself; where the data are scored pairs, these give the score."""

    key: ClassVar[str] = "EmbeddingAim"
    needs_teacher = True

    def __init__(
        self, model: Model, task: Task, learned: Examples, scored: Examples, distillation: Distillation, max_length: int
    ) -> None:
        self._asked = task.prompt_options.embedding
        self.embedding = embedding_of(model, self._asked)
        self._max_length = min(max_length, self.embedding.max_length or max_length)
        self._loop = Loop.over_tokens([model], Reading("cls", max_length=self._max_length), encoder=self._encoded)
        super().__init__(model, self._part(learned), self._part(scored), distillation)
        assert distillation.teacher is not None
        # Each model's states become embeddings by its own modules: a patch puts one behind the pooling of the student.
        self.taught = embedding_of(distillation.teacher, self._asked)
        widths = [_width(each, by) for each, by in ((model, self.embedding), (distillation.teacher, self.taught))]
        if widths[0] != widths[1]:
            raise InputError(
                f"{distillation.teacher.name} cannot teach {model.name}: its embeddings have {widths[1]} numbers, and "
                f"those of {model.name} have {widths[0]}; give a teacher with embeddings of that size."
            )
        pairs = scored.pairs is not None and task.regression and scored.labels is not None
        self._pairs = EmbeddingSimilarityEvaluator(model, task, scored, self._max_length) if pairs else None
        self._prompt = prompt_length(model, self.embedding)

    def _part(self, examples: Examples) -> Part:
        texts = single_texts(examples)
        return Part(texts, self._encoded, self._loop.reading, self._loop.items(texts)[0])

    def _encoded(self, model: Model, examples: Examples, reading: Reading) -> Items:
        texts = [read_as(self.embedding, text) for text in examples.texts]
        return encode(model, replace(examples, texts=texts), reading)

    @property
    def metric(self) -> str:
        return "cosine" if self._pairs is None else self._pairs.metric

    def settings(self) -> dict[str, Any]:
        own, taught = self.embedding.spec(), self.taught.spec()
        # The teacher's is named where it differs, so that keys of healings with one embedding stay what they were.
        return {"embedding": own, "max_length": self._max_length, **({} if own == taught else {"taught": taught})}

    def module(self, tuned: Model, frozen: int, trains_embeddings: bool) -> PrefixedNetwork:
        return EmbeddingHealing(tuned, frozen, trains_embeddings, self)

    def collate(self, tuned: Model) -> Callable[[Sequence[dict[str, Any]]], dict[str, Tensor]]:
        return _TextCollate(tuned)

    def vectors(self, states: Tensor, real: Tensor) -> Tensor:
        """Return (texts, width') embeddings of a batch."""
        return self.embedding.pooled(states, real, self._prompt)

    def wanted(self, states: Tensor, real: Tensor) -> Tensor:
        """Return (texts, width') embeddings that the teacher makes of its states of a batch."""
        return self.taught.pooled(states, real, self._prompt)

    def metrics(self, prediction: Any) -> dict[str, float]:
        cosines, lost = prediction.predictions
        if np.isnan(lost).any():
            return {"score": float("nan"), "held_out": float("nan")}
        return {"score": float(cosines.mean()), "held_out": mean_loss(lost)}

    def answers(self, model: Model, count: int | None = None) -> np.ndarray:
        """Return (texts, width') embeddings, as the model itself makes them."""
        embedding = embedding_of(model, self._asked)
        items = self.scored.items[:count]
        collate, rows = _TextCollate(model), ItemRows(items)
        vectors = []
        for start in range(0, len(rows), 32):
            batch = collate([rows[k] for k in range(start, min(start + 32, len(rows)))])
            real = batch.pop(_REAL).to(model.device)
            inputs = {k: v.to(model.device) for k, v in batch.items() if k != "labels"}
            states = Teacher(model)(partial(_states, inputs))
            vectors.append(embedding.pooled(states, real, self._prompt).float().cpu().numpy())
        return np.concatenate(vectors)

    def score(self, model: Model, answers: np.ndarray) -> Score:
        if self._pairs is not None:
            evaluator = self._pairs.with_model(model)
            return evaluator.score(evaluator.logits(note=False))
        cosines = self._cosines(answers)
        value, bounds = float(cosines.mean()), mean_interval(cosines, self.scored.examples.rows)
        return Score(
            value,
            metric="cosine",
            metrics={"cosine": value},
            n=len(answers),
            majority=float("nan"),
            provenance=provenance_of([model], self.scored.examples, {"metric": "cosine"}),
            note="mean cosine with the whole model's embeddings of the same texts",
            interval=bounds,
            interval_note="the texts are one row, or all alike" if np.isnan(bounds[0]) else "",
            kind=EmbeddingSimilarityEvaluator.score_kind,
        )

    def _cosines(self, answers: np.ndarray) -> np.ndarray:
        """Return (texts,) cosines of embeddings with the teacher's of the same texts."""
        assert self.distillation.teacher is not None
        if not hasattr(self, "_whole"):
            self._whole = torch.from_numpy(self.answers(self.distillation.teacher))
        return nn.functional.cosine_similarity(torch.from_numpy(answers), self._whole, dim=-1).numpy()

    def gain(self, before: np.ndarray, after: np.ndarray) -> Gain:
        if self._pairs is not None:
            # Embeddings are in the order of `single_texts`: all first texts of pairs, then all second ones.
            cosines = []
            for vectors in (before, after):
                first, second = torch.from_numpy(vectors).chunk(2)
                cosines.append(nn.functional.cosine_similarity(first, second, dim=-1).numpy()[:, None])
            return gain_between(self._pairs, *cosines)
        earlier, later = self._cosines(before), self._cosines(after)
        return gain_of(of_losses(-earlier, -later), of_losses(-later, -earlier))


def _width(model: Model, embedding: Embedding) -> int:
    """Return how many numbers the embeddings of a model have."""
    return embedding.pooled(torch.zeros(1, 1, model.width), torch.ones(1, 1)).shape[-1]


def _states(inputs: dict[str, Tensor], network: Any) -> Tensor:
    states: Tensor = network.base_model(**inputs).last_hidden_state
    return states


class _TextCollate:
    """Makes padded tokens of texts, and a mask of the positions that are real."""

    def __init__(self, model: Model) -> None:
        self._model, self._accepted = model, accepted_inputs(model.network.base_model)

    def __call__(self, entries: Sequence[dict[str, Any]]) -> dict[str, Tensor]:
        rows: ItemRows = entries[0]["rows"]
        places = [place for entry in entries for place in entry["items"]]
        every = padded([rows.items[place] for place in places], self._model.pad_token)
        batch = {k: v for k, v in every.items() if k in self._accepted} | rows.states(places)
        return {**batch, _REAL: every["attention_mask"], "labels": torch.tensor([int(e["label"]) for e in entries])}


class EmbeddingHealing(PrefixedNetwork):
    """A network that gives the distance of its embeddings from the teacher's."""

    def __init__(self, model: Model, frozen: int, trains_embeddings: bool, objective: EmbeddingObjective) -> None:
        super().__init__(model, frozen, trains_embeddings)
        assert objective.distillation.teacher is not None
        self._teacher, self._distance = Teacher(objective.distillation.teacher), objective.distillation.distance
        self._vectors, self._wanted = objective.vectors, objective.wanted

    def forward(self, **inputs: Any) -> dict[str, Tensor]:
        real, _ = (inputs.pop(name) for name in (_REAL, "labels"))
        given = self.answering_prefix(inputs)
        whole = self._wanted(self._teacher(lambda network: network.base_model(**inputs).last_hidden_state), real)
        with given, caches_off(self.network):
            vectors = self._vectors(self.network.base_model(**inputs).last_hidden_state, real)
        cosine = nn.functional.cosine_similarity(vectors, whole, dim=-1)
        lost = 1 - cosine if self._distance == "cosine" else (vectors - whole).square().mean(dim=-1)
        answer = {"loss": lost.mean()}
        return answer if self.training else {**answer, "logits": cosine[:, None], LOST: lost}
