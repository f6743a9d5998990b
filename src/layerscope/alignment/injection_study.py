"""Does the target still work on the source's mapped states? The study of Ren et al. 2023, table 5, and its figures."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from layerscope import metrics
from layerscope.alignment.align import Fitting, Place, fit_all
from layerscope.alignment.aligner import Aligner, Options, check_methods, options_for, usable
from layerscope.alignment.alignment_study import Study
from layerscope.alignment.inject import check, counterpart, logits, mapped
from layerscope.alignment.model_pairs import MOST_ROWS, Correspondence, States
from layerscope.data import Examples, TaskSource
from layerscope.data import task as open_task
from layerscope.drawing.captions import MAJORITY, caveat, numbers
from layerscope.drawing.figures.bars import BarsFigure
from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.engine import check_engine
from layerscope.errors import InputError, ModelError, check_count, check_seed
from layerscope.evaluation.classification import ClassificationEvaluator
from layerscope.evaluation.evaluator import LONGEST, Read, without_groups
from layerscope.evaluation.label_order import note_order
from layerscope.evaluation.layer_heads import LayerHeads
from layerscope.extraction.pooling import Reading
from layerscope.models import Model, Replay
from layerscope.models.architecture import accepted_inputs, evaluating
from layerscope.models.lineage import known_rows, learned
from layerscope.models.load import ModelSource, load_whole
from layerscope.resampling import jackknifed
from layerscope.results import Finding, NextStep, provenance_of
from layerscope.results.finding import (
    ANSWER,
    SUPPORT,
    extreme,
    interval,
    number,
    rows,
    widened,
)
from layerscope.store import digest

if TYPE_CHECKING:
    from layerscope.drawing.figure import Figure, Marks


RANDOM_EMBEDDING, RANDOM_LABEL = "random embedding", "random label"
_BANDS = "Intervals of 95% are by the bootstrap over texts; of guesses, over draws."
_CAVEAT = "A head may score well on a map with a large error: it reads few directions."


class InjectionStudy(Study):
    """The target's score with a layer replaced by the source's, mapped; `ls.injection_study` makes one.

    `frame` has one row per layer and method or floor: layer, source_layer, method, score with its interval over texts
    (low, high; 95 %), how much less it is than the target's own on the same texts (lost, lost_low, lost_high; not for
    labels drawn at random), and the same in every row: source_score and target_score with theirs, majority, metric, n.
    """

    name = "injection"

    def figures(self) -> list[Figure]:
        """Curves over the layers, or bars where one layer was replaced; and the table."""
        drawn: Figure = self._curves() if self.frame["layer"].nunique() > 1 else self._bars()
        return [drawn, numbers("All methods", "Every method and floor at every layer.", self.frame)]

    def findings(self) -> list[Finding]:
        """The scores at the highest layer that was replaced and the best one at the lowest, beside the target's own."""
        first, layers = self.frame.iloc[0], self.frame["layer"]
        scores = self.frame[layers == layers.max()]
        values = ", ".join(f"{r.method} {r.score:.3f} ({r.low:.3f} to {r.high:.3f})" for r in scores.itertuples())
        text = (
            f"With its layer {layers.max()} replaced by the source's, mapped, the target has {first['metric']}: "
            f"{values}; on its own states it has {first['target_score']:.3f} ({first['target_low']:.3f} to "
            f"{first['target_high']:.3f})."
        )
        best, loses, beside = self._best_map(layers.max())
        if best is None:
            return [Finding(text, "", None, ANSWER)]
        verdict = "something is lost" if loses else "no loss is shown"
        findings = [Finding(text, f"{best['method']}, {beside}: {verdict}{rows(self._n)}", loses, ANSWER)]
        lowest, loses, beside = self._best_map(layers.min())
        if lowest is not None and layers.min() != layers.max():
            text = (
                f"With layer {layers.min()} replaced by the other model's, mapped by {lowest['method']}, "
                f"{self._metric} is {number(lowest['score'])}; on its own states the target has "
                f"{number(first['target_score'])}. {'Something is lost.' if loses else 'No loss is shown.'}"
            )
            bounds = interval(lowest["low"], lowest["high"])
            findings.append(Finding(text, f"{bounds}, {beside}{rows(self._n)}", loses, SUPPORT))
        return findings

    def _best_map(self, layer: int) -> tuple[Any, bool, str]:
        """The row of the best method at a layer (None where none scored), whether it loses, and what it is best of."""
        at = self.frame[(self.frame["layer"] == layer) & self.frame["score"].notna()]
        at = at[~at["method"].isin((RANDOM_EMBEDDING, RANDOM_LABEL))]
        if not len(at):
            return None, False, ""
        up = metrics.higher_is_better(self._metric)
        best = extreme(at, "score", most=up)
        low, high = widened(best["lost"], best["lost_low"], best["lost_high"], len(at))  # text for text
        return best, bool(low > 0 if up else high < 0), f"the best of {len(at)} methods"

    def next_step(self) -> NextStep:
        """The comparison of the two models."""
        pair = tuple(str(model.get("name", "")) for model in self.provenance.get("models", ()))[:2]
        arguments = ("--measure", "cka_debiased,mutual_knn", "--ci", "0.95", "-o", "compared")
        return NextStep("compare", arguments, "See where the two models part", pair)

    @property
    def _metric(self) -> str:
        """The name of the metric."""
        return str(self.frame["metric"].iloc[0])

    @property
    def _n(self) -> int:
        """How many texts were scored."""
        return int(self.frame["n"].iloc[0])

    @property
    def _references(self) -> Marks:
        """The scores of both models alone and of the commonest class, as lines in the figures."""
        first = self.frame.iloc[0]
        alone = tuple((f"{side} alone", float(first[f"{side}_score"])) for side in ("source", "target"))
        return (*alone, (MAJORITY, float(first["majority"])))

    def _curves(self) -> CurveFigure:
        """The scores of every method over the layers."""
        series = [
            Series(str(method), *(tuple(map(float, part[name])) for name in ("layer", "score", "low", "high")))
            for method, part in self.frame.groupby("method", sort=False)
        ]
        return CurveFigure(
            title="The target on the source's mapped states",
            shows=f"{self._metric} of the target when one of its layers is replaced by the source's, mapped by each "
            f"method. {_BANDS}",
            reading="Near the target's own score the map keeps what the target uses; at the floors it keeps nothing.",
            caveat=caveat(_CAVEAT, self._n),
            series=tuple(series),
            x_name="layer of the target that is replaced",
            y_name=self._metric,
            references=self._references,
            n=self._n,
        )

    def _bars(self) -> BarsFigure:
        """The scores of every method at the only layer that was replaced."""
        layer = self.frame["layer"].iloc[0]
        return BarsFigure(
            title=f"The target's head on the source's layer, in place of layer {layer}",
            shows=f"{self._metric} of the target when its layer {layer} is replaced by the source's, mapped by each "
            f"method. Identity is no map at all; {RANDOM_EMBEDDING} is noise in its place, {RANDOM_LABEL} a guess. "
            f"{_BANDS}",
            reading="Near the target's own score the map keeps what the head uses; near noise it keeps nothing.",
            caveat=caveat(_CAVEAT, self._n),
            names=tuple(map(str, self.frame["method"])),
            values=tuple(map(float, self.frame["score"])),
            low=tuple(map(float, self.frame["low"])),
            high=tuple(map(float, self.frame["high"])),
            y_name=self._metric,
            references=self._references,
            n=self._n,
        )


_DRAWS = 200  # of random labels
_TEXTS = 400  # whose tokens aligners learn from, at most
Act = Callable[[Tensor, Replay, Mapping[str, Tensor]], Tensor]  # from the source's states to states for the target


def injection_study(
    source: ModelSource,
    target: ModelSource,
    task: TaskSource,
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
        task: A task of the registry (`layerscope tasks` lists them), a file, a folder, a hub id, or a `Task`. Both
            classifiers are tuned for it.
        layers: The target's layers: `8`, `0,4,8`, `6-12` or `all`; its last one if not given. The source's layer of the
            same number is taken, its last for the target's last.
        methods: Alignment methods, separated by commas; all that fit the widths if not given.
        split: Which split is scored; the task's own choice if not given.
        limit: How many texts are scored at most.
        train: How many texts aligners learn from.
        max_length: The longest text in tokens; what both models allow if not given.
        seed: Decides folds, networks and floors.
        options: A method's own options, such as `{"inn": {"steps": 500}}`.
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
    # Where one split serves for both, at least half of it is left to be scored.
    both = data.resolve(None, learning=True) == data.resolve(split)
    held = max(0.5, 1 - train / len(data.split(split))) if both else 0.5
    learned_before = None
    if not all_rows and (learned(giving.network) or learned(taking.network)):
        learned_before = partial(known_rows, [giving, taking], in_other_data=len(data.splits) == 1)
    learned_from, examples = data.parted(held, split, (train, limit), learned_before)
    _same_inputs(giving, taking, examples)
    evaluator = ClassificationEvaluator(taking, data, examples, _shorter(giving, taking, max_length))
    sides = _Sides(giving, taking, places, learned_from, evaluator.reading.max_length, seed)
    asked = [(place, method) for place in places for method in chosen]
    fitted = fit_all(
        [
            Fitting(*sides[place], [place], method, seed, options_for(method, options), taking.device)
            for place, method in asked
        ],
        "injection",
        engine,
        [f"{method} from layer {source_layer} to layer {at}" for (source_layer, at), method in asked],
    )
    maps = {name: _Mapped(aligner) for name, (aligner,) in zip(asked, fitted, strict=True)}
    variants: list[tuple[Place, str, Act]] = []
    for place in places:
        variants += [(place, method, maps[place, method]) for method in chosen]
        variants.append((place, RANDOM_EMBEDDING, _Noise(sides[place][1][place[1]], seed)))

    def act(inputs: dict[str, Tensor], _: Read) -> Tensor:
        with evaluating(giving.network):
            replayed = Replay(giving, {name: value.to(giving.device) for name, value in inputs.items()})
        into = Replay(taking, inputs)
        return torch.stack(
            [logits(into, at, make(replayed.states[layer], into, inputs)) for (layer, at), _, make in variants]
        )

    answers = evaluator.logits(act, title=f"{giving.name} into {taking.name} on {examples.task} ({examples.split})")
    source_evaluator = ClassificationEvaluator(giving, data, examples, evaluator.reading.max_length)
    alone = {"source": _scored(source_evaluator, source_evaluator.logits(note=False))}
    target_answers = evaluator.logits(note=False)
    alone["target"] = _scored(evaluator, target_answers)
    in_every_row = {
        **{f"{side}_{name}": value for side, score in alone.items() for name, value in score.items()},
        "majority": evaluator.majority,
        "metric": data.metric,
        "n": len(examples),
    }
    lost = [_lost(evaluator, target_answers, answer) for answer in answers]
    scores = [
        (place, name, {**_scored(evaluator, answer), **less})
        for (place, name, _), answer, (less, _) in zip(variants, answers, lost, strict=True)
    ]
    choices = examples.choices
    guessed = random_labels(
        evaluator.labels, data.metric, seed, answers.shape[-1] if choices is None else np.asarray([*map(len, choices)])
    )
    scores += [(place, RANDOM_LABEL, guessed) for place in places]
    left_out = np.asarray([without for _, without in lost] + [np.full_like(lost[0][1], np.nan)] * len(places))
    rows = [
        {"layer": at, "source_layer": source_layer, "method": name, **score, **in_every_row}
        for (source_layer, at), name, score in scores
    ]
    settings = {
        "layers": [at for _, at in places],
        "methods": chosen,
        "metric": data.metric,
        "train": train,
        "limit": limit,
        "max_length": evaluator.reading.max_length,
        "seed": seed,
        "options": {name: dict(given) for name, given in options.items()} if options else None,
    }
    return InjectionStudy(pandas.DataFrame(rows), provenance_of([giving, taking], examples, settings), left_out)


def _scored(evaluator: ClassificationEvaluator, answers: np.ndarray) -> dict[str, float]:
    """The score of some logits, with its interval by the bootstrap over texts."""
    low, high = evaluator.interval(answers)
    return {"score": evaluator.value(answers), "low": low, "high": high}


def _lost(
    evaluator: ClassificationEvaluator, alone: np.ndarray, answers: np.ndarray
) -> tuple[dict[str, float], np.ndarray]:
    """How much less `answers` score than the logits of the target `alone`, with an interval by the jackknife.

    Beside it are the losses without each group of texts.
    """
    lost = evaluator.value(alone) - evaluator.value(answers)
    without = without_groups(evaluator, [alone, answers])
    left_out = without[:, 0] - without[:, 1]
    half = float(jackknifed(left_out))
    return {"lost": lost, "lost_low": lost - half, "lost_high": lost + half}, left_out


def _same_inputs(source: Model, target: Model, examples: Examples) -> None:
    """Raise ModelError where one model tells the texts of a pair apart by token types and the other has none."""
    kinds = ["token_type_ids" in accepted_inputs(m.network.base_model) for m in (source, target)]
    if examples.pairs is not None and kinds[0] != kinds[1]:
        raise ModelError(
            f"Of {source.name} and {target.name} only one reads token types, so pairs are not the same input."
        )


def _shorter(source: Model, target: Model, max_length: int | None) -> int | None:
    """The longest text in tokens that both models can read, where no `max_length` is asked for; None: no limit."""
    positions = [model.positions for model in (source, target) if model.positions]
    return max_length if max_length is not None or not positions else min(*positions, LONGEST)


class _Sides:
    """The rows that aligners learn from, by place: summary tokens where the head reads nothing else, or all tokens."""

    def __init__(
        self, source: Model, target: Model, places: Sequence[Place], texts: Examples, max_length: int, seed: int
    ) -> None:
        self._depth, self._summary = target.depth, reads_summary(target)
        self._sides: dict[bool, tuple[States, States]] = {}
        for summary in {self._by_summary(place) for place in places}:
            reading = Reading("cls" if summary else "tokens", special=not summary, max_length=max_length)
            some = texts if summary else texts.take(slice(_TEXTS))
            layers = zip(*(place for place in places if self._by_summary(place) == summary), strict=True)
            correspondence = Correspondence()
            first, second = (
                States(model, some, chosen, reading, correspondence, (seed, MOST_ROWS))
                for model, chosen in zip((source, target), layers, strict=True)
            )
            self._sides[summary] = first, second

    def __getitem__(self, place: Place) -> tuple[States, States]:
        return self._sides[self._by_summary(place)]

    def _by_summary(self, place: Place) -> bool:
        """Whether the head reads nothing of this layer but the summary token."""
        return place[1] == self._depth and self._summary


class _Mapped:
    """States for the target: the source's, mapped by an aligner."""

    def __init__(self, aligner: Aligner) -> None:
        self._aligner = aligner

    def __call__(self, state: Tensor, replay: Replay, inputs: Mapping[str, Tensor]) -> Tensor:
        return mapped(self._aligner, state, replay)


class _Noise:
    """States for the target that hold nothing of the text: normal, with each feature's mean and deviation.

    The seed of a text's draw comes from its tokens, so that the batches do not change it.
    """

    def __init__(self, rows: Tensor, seed: int) -> None:
        self._mean, self._spread, self._seed = rows.mean(dim=0), rows.std(dim=0), seed

    def __call__(self, state: Tensor, replay: Replay, inputs: Mapping[str, Tensor]) -> Tensor:
        mask, like = inputs["attention_mask"].flatten(0, -2).bool().cpu(), replay.states[-1]
        noise = torch.zeros(*state.shape[:-1], len(self._mean))
        for k, ids in enumerate(inputs["input_ids"].flatten(0, -2).cpu()):
            text_seed = int(digest(str(self._seed), str(ids[mask[k]].tolist()))[:12], 16)
            drawn = torch.randn(int(mask[k].sum()), len(self._mean), generator=torch.Generator().manual_seed(text_seed))
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

    `classes` is the number of classes, or the number of choices of each text. The interval holds 95 % of the draws.
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
    """The pairs of a source's and a target's layer that are asked for."""
    if isinstance(layers, str) and layers != "all":
        raise InputError(f"layers is {layers!r}; give numbers, 'all', or nothing for the last layer.")
    chosen = [target.depth] if layers is None else range(target.depth + 1) if layers == "all" else layers
    if not len(chosen):
        raise InputError("layers is empty; give numbers, 'all', or nothing for the last layer.")
    return [(counterpart(source, target, int(layer)), int(layer)) for layer in chosen]
