"""Does the target still work when it is handed the source's mapped states? (Ren et al. 2023, table 5)"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from layerscope.alignment.aligner import Aligner
from layerscope.alignment.fitting import Fitting, Place, fit_all
from layerscope.alignment.injecting import check, counterpart, logits, mapped
from layerscope.alignment.injection_results import RANDOM_EMBEDDING, RANDOM_LABEL, InjectionStudy
from layerscope.alignment.methods import Options, check_methods, usable
from layerscope.alignment.sides import MOST_ROWS, Correspondence, States
from layerscope.data import Examples, metrics
from layerscope.data import task as open_task
from layerscope.data.resampling import jackknifed
from layerscope.engine import check_engine
from layerscope.errors import InputError, ModelError, check_count, check_seed
from layerscope.evaluation.exam import LONGEST, Exam, note_order
from layerscope.evaluation.layer_heads import LayerHeads
from layerscope.evaluation.leaving_out import without_groups
from layerscope.evaluation.sitting import Read
from layerscope.extraction.reading import Reading
from layerscope.models import Model, Replay
from layerscope.models.anatomy import accepted_inputs, evaluating
from layerscope.models.lineage import known_rows
from layerscope.models.load import load_whole
from layerscope.results import provenance_of
from layerscope.store import digest

_DRAWS = 200  # of random labels
_TEXTS = 400  # whose tokens aligners learn from, at most
Act = Callable[[Tensor, Replay, Mapping[str, Tensor]], Tensor]  # the source's states -> states for the target


def injection_study(
    source: Any,
    target: Any,
    task: Any,
    *,
    layers: Sequence[int] | str | None = None,
    methods: Sequence[str] | None = None,
    split: str | None = None,
    limit: int | None = None,
    train: int = 1600,
    max_length: int | None = None,
    seed: int = 0,
    options: Options | None = None,
    all_rows: bool = False,
    engine: str = "local",
) -> InjectionStudy:
    """The target's score on a split with one of its layers replaced by the source's, mapped by every method.

    Aligners learn from texts of the train split: from summary tokens where the head reads nothing else (the last
    layer), from all real tokens (of at most 400 of the texts) below it. Where that is the split to score on, at most
    half of it is learned from and the rest is scored. Floors: states drawn from a normal distribution with the target's
    means and deviations, and labels drawn at random.

    Args:
        source: The classifier whose states are mapped.
        target: The classifier that goes on with them; it has the same tokenizer.
        task: A labelled task that both are tuned for.
        layers: The target's layers: numbers, "all", or its last one if not given. The source's layer of the same
            number is taken, its last for the target's last.
        methods: Alignment methods; all that fit the widths if not given.
        split: Which split is scored; the task's own choice if not given.
        limit: How many texts are scored at most.
        train: How many texts aligners learn from.
        max_length: The longest text in tokens; what both models allow if not given.
        seed: Decides folds, networks and floors.
        options: A method's own, such as `{"inn": {"steps": 500}}`.
        all_rows: Score also texts that one of the classifiers learned from.
        engine: Where the fits run: `local` (one after another, here), `processes:N`, `ray` or `ray:ADDRESS`.

    Returns:
        The study: `frame` has one row per layer and method or floor, with intervals of 95 % over texts.

    Example:
        >>> import pandas
        >>> from transformers import AutoModelForSequenceClassification
        >>> import layerscope as ls
        >>> bare = ls.load("garden:bert-s0")
        >>> network = AutoModelForSequenceClassification.from_config(bare.network.config)  # with an untrained head
        >>> model = ls.load(network, tokenizer=bare.tokenizer)
        >>> rows = pandas.DataFrame({"text": ["a file", "the list"] * 20, "label": ["file", "list"] * 20})
        >>> study = ls.injection_study(model, model, rows, methods=["identity"])
        >>> study.frame["method"].tolist()
        ['identity', 'random embedding', 'random label']
    """
    import pandas

    check_seed(seed)
    check_engine(engine)
    check_methods(methods, options)
    giving, taking, data = load_whole(source, "injection"), load_whole(target, "injection"), open_task(task)
    note_order(giving, data)
    note_order(taking, data)
    chosen = usable(giving.width, taking.width, options) if methods is None else list(methods)
    places = _places(giving, taking, layers)
    check(giving, taking, places)
    check_count(limit, "limit")
    check_count(train, "train")
    held = max(0.5, 1 - train / len(data.split(split)))
    known = None if all_rows else partial(known_rows, [giving, taking], in_other_data=len(data.splits) == 1)
    learned_from, examples = data.parted(held, split, (train, limit), known)
    _same_inputs(giving, taking, examples)
    exam = Exam(taking, data, examples, _shorter(giving, taking, max_length))
    sides = _Sides(giving, taking, places, learned_from, exam.reading.max_length, seed)
    asked = [(place, method) for place in places for method in chosen]
    fitted = fit_all(
        [
            Fitting(*sides[place], [place], method, seed, (options or {}).get(method, {}), taking.device)
            for place, method in asked
        ],
        "injection",
        engine,
        [f"{method} from layer {own} to layer {at}" for (own, at), method in asked],
    )
    maps = {name: _Mapped(aligner) for name, (aligner,) in zip(asked, fitted, strict=True)}
    variants: list[tuple[Place, str, Act]] = []
    for place in places:
        variants += [(place, method, maps[place, method]) for method in chosen]
        variants.append((place, RANDOM_EMBEDDING, _Noise(sides[place][1][place[1]], seed)))

    def act(inputs: dict[str, Tensor], _: Read) -> Tensor:
        with evaluating(giving.network):
            given = Replay(giving, {name: value.to(giving.device) for name, value in inputs.items()})
        taken = Replay(taking, inputs)
        return torch.stack(
            [logits(taken, at, make(given.states[own], taken, inputs)) for (own, at), _, make in variants]
        )

    answers = exam.logits(act, title=f"{giving.name} into {taking.name} on {examples.task} ({examples.split})")
    source_exam = Exam(giving, data, examples, exam.reading.max_length)
    alone = {"source": _scored(source_exam, source_exam.logits(note=False))}
    own_answers = exam.logits(note=False)
    alone["target"] = _scored(exam, own_answers)
    about = {
        **{f"{side}_{name}": value for side, own in alone.items() for name, value in own.items()},
        "majority": exam.majority,
        "metric": data.metric,
        "n": len(examples),
    }
    lost = [_lost(exam, own_answers, answer) for answer in answers]
    scores = [
        (place, name, {**_scored(exam, answer), **less})
        for (place, name, _), answer, (less, _) in zip(variants, answers, lost, strict=True)
    ]
    choices = examples.choices
    guessed = random_labels(
        exam.labels, data.metric, seed, answers.shape[-1] if choices is None else np.asarray([*map(len, choices)])
    )
    scores += [(place, RANDOM_LABEL, guessed) for place in places]
    left_out = np.asarray([without for _, without in lost] + [np.full_like(lost[0][1], np.nan)] * len(places))
    rows = [{"layer": at, "source_layer": own, "method": name, **score, **about} for (own, at), name, score in scores]
    settings = {
        "layers": [at for _, at in places],
        "methods": chosen,
        "metric": data.metric,
        "train": train,
        "limit": limit,
        "max_length": exam.reading.max_length,
        "seed": seed,
        "options": {name: dict(given) for name, given in options.items()} if options else None,
    }
    return InjectionStudy(pandas.DataFrame(rows), provenance_of([giving, taking], examples, settings), left_out)


def _scored(exam: Exam, answers: np.ndarray) -> dict[str, float]:
    """The score of some logits, with its interval by the bootstrap over texts."""
    low, high = exam.interval(answers)
    return {"score": exam.value(answers), "low": low, "high": high}


def _lost(exam: Exam, own: np.ndarray, answers: np.ndarray) -> tuple[dict[str, float], np.ndarray]:
    """How much less some logits score than the target's own on the same texts, with its interval by the jackknife.

    And what it would be without each group of texts.
    """
    lost = exam.value(own) - exam.value(answers)
    without = without_groups(exam, [own, answers])
    left_out = without[:, 0] - without[:, 1]
    half = float(jackknifed(left_out))
    return {"lost": lost, "lost_low": lost - half, "lost_high": lost + half}, left_out


def _same_inputs(source: Model, target: Model, examples: Examples) -> None:
    """Raise a sentence where one model tells the texts of a pair apart by token types and the other has none."""
    kinds = ["token_type_ids" in accepted_inputs(m.network.base_model) for m in (source, target)]
    if examples.pairs is not None and kinds[0] != kinds[1]:
        raise ModelError(
            f"Of {source.name} and {target.name} only one reads token types, so pairs are not the same input."
        )


def _shorter(source: Model, target: Model, max_length: int | None) -> int | None:
    """The longest text that both models can read, where nothing else is asked for."""
    known = [model.positions for model in (source, target) if model.positions]
    return max_length if max_length is not None or not known else min(*known, LONGEST)


class _Sides:
    """The rows that aligners learn from, by place: one pass per model for the summary token, one for all tokens."""

    def __init__(
        self, source: Model, target: Model, places: Sequence[Place], texts: Examples, max_length: int, seed: int
    ) -> None:
        self._depth, self._summary = target.depth, reads_summary(target)
        self._sides: dict[bool, tuple[States, States]] = {}
        for summary in {self._by_summary(place) for place in places}:
            reading = Reading("cls" if summary else "tokens", special=not summary, max_length=max_length)
            some = texts if summary else texts.take(slice(_TEXTS))
            layers = zip(*(place for place in places if self._by_summary(place) == summary), strict=True)
            meeting = Correspondence()
            first, second = (
                States(model, some, own, reading, meeting, (seed, MOST_ROWS))
                for model, own in zip((source, target), layers, strict=True)
            )
            self._sides[summary] = first, second

    def __getitem__(self, place: Place) -> tuple[States, States]:
        return self._sides[self._by_summary(place)]

    def _by_summary(self, place: Place) -> bool:
        return place[1] == self._depth and self._summary


class _Mapped:
    """The source's states through an aligner."""

    def __init__(self, aligner: Aligner) -> None:
        self._aligner = aligner

    def __call__(self, state: Tensor, replay: Replay, inputs: Mapping[str, Tensor]) -> Tensor:
        return mapped(self._aligner, state, replay)


class _Noise:
    """States without anything of the text: normal, with each feature's mean and deviation.

    A text's tokens decide what is drawn for it, so that batches do not.
    """

    def __init__(self, rows: Tensor, seed: int) -> None:
        self._mean, self._spread, self._seed = rows.mean(dim=0), rows.std(dim=0), seed

    def __call__(self, state: Tensor, replay: Replay, inputs: Mapping[str, Tensor]) -> Tensor:
        mask, like = inputs["attention_mask"].flatten(0, -2).bool().cpu(), replay.states[-1]
        noise = torch.zeros(*state.shape[:-1], len(self._mean))
        for k, ids in enumerate(inputs["input_ids"].flatten(0, -2).cpu()):
            own = int(digest(str(self._seed), str(ids[mask[k]].tolist()))[:12], 16)
            drawn = torch.randn(int(mask[k].sum()), len(self._mean), generator=torch.Generator().manual_seed(own))
            noise[k, mask[k]] = self._mean + self._spread * drawn
        return noise.to(like)


def reads_summary(model: Model) -> bool:
    """Whether the head reads the summary token and nothing else."""
    try:
        LayerHeads(model, [model.depth])
    except ModelError:
        return False
    return True


def random_labels(labels: np.ndarray, metric: str, seed: int, classes: int | np.ndarray) -> dict[str, float]:
    """The mean score of guesses drawn at random: classes uniformly, numbers from the labels themselves.

    `classes` is how many there are, or how many choices each text has.

    Its interval has 95 % of the draws in it.
    """
    generator = np.random.default_rng(seed)
    scores = []
    for _ in range(_DRAWS):
        numbers = labels.dtype.kind == "f"
        guesses = generator.permutation(labels) if numbers else generator.integers(0, classes, len(labels))
        scores.append(metrics.score(metric, labels, guesses, int(np.max(classes))))
    low, high = np.quantile(scores, [0.025, 0.975])
    return {"score": float(np.mean(scores)), "low": float(low), "high": float(high)}


def _places(source: Model, target: Model, layers: Sequence[int] | str | None) -> list[Place]:
    if isinstance(layers, str) and layers != "all":
        raise InputError(f"layers is {layers!r}; give numbers, 'all', or nothing for the last layer.")
    chosen = [target.depth] if layers is None else range(target.depth + 1) if layers == "all" else layers
    if not len(chosen):
        raise InputError("layers is empty; give numbers, 'all', or nothing for the last layer.")
    return [(counterpart(source, target, int(layer)), int(layer)) for layer in chosen]
