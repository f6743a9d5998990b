"""The steps of `layerscope demo`: each computes one thing with the Python API and says what came out.

The step of `layerscope demo` on a language model: which blocks it can lose, by several rules, and one cut of it.

The steps of `layerscope demo` that cut the tuned model: what each block is worth, and a smaller model.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas

import layerscope as ls
from layerscope.cli.demo.stage import CHECKPOINT, Outcome, Settings, Stage
from layerscope.drawing.captions import MAJORITY, caveat, listed, numbers
from layerscope.drawing.figures.bars import BarsFigure
from layerscope.errors import ModelError
from layerscope.evaluation.perplexity import BETWEEN
from layerscope.models.sources import DEMO_LM, demo_lm_file
from layerscope.results import Table

if TYPE_CHECKING:
    from pandas import DataFrame

    from layerscope.data import Examples


SMALLER_LM = "smaller-language-model"
RULES = ("angular", "last", "random")


def missing(settings: Settings) -> str:
    """What must be installed for this step, in a sentence; nothing where all is there."""
    if settings.language_model != DEMO_LM:
        return ""
    try:
        demo_lm_file()
    except ModelError as error:
        return str(error)
    there = importlib.util.find_spec("gguf") is not None
    return "" if there else f"{DEMO_LM} is a GGUF file; install what reads it with: pip install 'layerscope[gguf]'."


def language(stage: Stage) -> Outcome:
    s = stage.settings
    model = stage.open(s.language_model)
    texts = ls.task(s.task, kind="text")
    options: dict[str, Any] = {"limit": fitting(model, stage.texts, s.language_tokens), "max_length": s.window}
    distances = ls.compare(model, measure="angular", task=s.task, pool="tokens", names=[s.language_model], **options)
    removed = [size for size in s.language_sizes if size < model.depth]
    advice = ls.advise(
        model, texts, rules=list(RULES), remove=removed, tolerance=s.lost, confidence=0, timed=False, **options
    )
    plan, row = _chosen(advice)
    folder = stage.out / SMALLER_LM
    ls.save(ls.cut(model, plan), folder)
    again = ls.evaluate(stage.open(folder), texts, **options)
    said = [
        _distance_sentence(distances, model.depth),
        _rule_sentence(advice),
        f"Without blocks {_gone(plan, model.depth)} ({row['rule']}) it has perplexity {row['score']:.1f} on the half "
        f"of the text that did not choose them, where the whole model has {advice.frame.iloc[0]['score']:.1f}.",
        f"Saved in {folder} and reopened: {len(plan.keep)} of {model.depth} blocks, perplexity {float(again):.1f} over "
        f"all {int(again.metrics['tokens']):,} tokens.",
    ]
    own = "layerscope advise FILE.gguf --task TEXTS.txt --rules angular,greedy,random --save smaller -o out"
    about = {"language_model": s.language_model, "tokens": int(again.metrics["tokens"]), "rules": list(RULES)}
    return Outcome(said, {"angular": distances, "advice": advice}, own, settings=about)


def fitting(model: ls.Model, examples: Examples, tokens: int) -> int:
    """How many of the texts, from the first on and joined, have at most so many tokens; at least one."""
    tokenizer, fits = model.require_tokenizer(), 1
    for count in range(2, len(examples.texts) + 1):
        joined = BETWEEN.join(examples.texts[:count])
        if len(tokenizer(joined, add_special_tokens=False, verbose=False)["input_ids"]) > tokens:
            break
        fits = count
    return fits


def _chosen(advice: ls.Advice) -> tuple[ls.LayerPlan, Any]:
    """The advice, or, where every plan loses more than may be lost, the one that loses least."""
    from layerscope.cutting.plan import integers

    if advice.choice.removed(advice.evaluator.model.depth):
        return advice.choice, advice.row
    smaller = advice.frame[advice.frame["savable"] & (advice.frame["removed"] > 0)]
    row = smaller.sort_values("chosen_on").iloc[0]  # perplexity: less is better
    return ls.LayerPlan(integers(row["blocks"])), row


def _distance_sentence(distances: ls.Similarity, depth: int) -> str:
    step = {layer: float(distances.values[layer - 1, layer]) for layer in range(1, depth + 1)}
    least, most = min(step, key=step.__getitem__), max(step, key=step.__getitem__)
    return (
        f"Over tokens, block {least} turns what goes through it least (angular distance {step[least]:.3f} of its input "
        f"and output) and block {most} most ({step[most]:.3f})."
    )


def _rule_sentence(advice: ls.Advice) -> str:
    """What each rule's plans score, by how many blocks go."""
    parts = []
    for size in sorted({int(removed) for removed in advice.rules["removed"]}):
        rows = advice.rules[advice.rules["removed"] == size].to_dict("records")
        told = [f"{row['rule']} {row['score']:,.1f}" for row in rows]
        parts.append(f"without {size} block{'s' * (size > 1)}: {listed(told)}")
    return f"Perplexity by rule, {'; '.join(parts)} (of random plans the middle one)."


def _gone(plan: ls.LayerPlan, depth: int) -> str:
    return listed([str(block) for block in plan.removed(depth)])


SMALLER = "smaller-model"


def truncate(stage: Stage) -> Outcome:
    s, model = stage.settings, stage.tuned[0]
    untuned = ls.truncation_curve(model, stage.task, **stage.scored)
    tuned = ls.truncation_curve(model, stage.task, mode="tuned", train_limit=s.learned, **stage.scored)
    skips = ls.skip_map(model, stage.task, **stage.scored)
    said = [
        _cut_sentence(untuned.frame, tuned.frame),
        _skip_sentence(skips.frame, float(untuned.frame["score"].iloc[-1])),
    ]
    both = ls.Truncation.together({"UNTUNED: nothing trained": untuned, "TUNED: head trained there": tuned})
    own = "layerscope truncate CLASSIFIER --task TASK --curve -o out, and layerscope skip CLASSIFIER --task TASK --map"
    return Outcome(said, {"truncation": both, "skip-map": skips}, own, settings={"train_limit": s.learned})


def _cut_sentence(untuned: DataFrame, tuned: DataFrame) -> str:
    metric, scores, trained = untuned["metric"].iloc[0], untuned["score"].to_numpy(), tuned["score"].to_numpy()
    depth, whole = len(scores) - 1, float(scores[-1])
    near = next((layer for layer in range(depth) if trained[layer] >= whole - 0.01), None)
    lowest = "no lower layer comes" if near is None else f"layer {near} is the lowest that comes"
    return (
        f"The whole tuned model has {metric} {whole:.3f}. With its head on layer {depth - 1}, and block {depth} gone, "
        f"it has {scores[depth - 1]:.3f} if nothing is trained (UNTUNED) and {trained[depth - 1]:.3f} if the head is "
        f"trained further there (TUNED); with trained heads {lowest} within 0.01 of the whole."
    )


def _skip_sentence(skips: DataFrame, whole: float) -> str:
    single = skips[skips["first"] == skips["last"]].sort_values("score")
    worst, best = single.iloc[0], single.iloc[-1]
    return (
        f"Of single blocks, {best['first']} is missed least ({best['score']:.3f} without it, {whole:.3f} with it) and "
        f"{worst['first']} most ({worst['score']:.3f})."
    )


def advise(stage: Stage) -> Outcome:
    s, whole = stage.settings, stage.tuned[0]
    bounds: dict[str, Any] = {"max_span": s.longest_span, "evaluations": s.searched}
    advice = ls.advise(whole, stage.task, tolerance=s.tolerance, **bounds, **stage.scored)
    plan, row, why = _plan(advice, s.tolerance)
    folder = stage.out / SMALLER
    smaller = ls.cut(whole, plan)
    ls.save(smaller, folder, scores=ls.evaluate(smaller, stage.task, **stage.scored))
    again = stage.open(folder)
    again.name = SMALLER
    checkpoint = stage.trainings.trainings[0].path / CHECKPOINT
    before, after = (_measured(model, at, stage) for model, at in ((whole, checkpoint), (again, folder)))
    said = [
        f"{why} It keeps block{'s' * (len(plan.keep) > 1)} {row['blocks']}: {row['metric']} {row['score']:.3f} "
        f"({row['low']:.3f} to {row['high']:.3f}) on the half of the texts that did not choose it, where the whole "
        f"model has {advice.frame.iloc[0]['score']:.3f}.",
        f"Saved in {folder} and reopened: {after['megabytes']:.1f} MB where the whole model has "
        f"{before['megabytes']:.1f}; {_milliseconds(after)} where it takes {_milliseconds(before)}; over all "
        f"{len(stage.texts)} texts {row['metric']} {after['score']:.3f} where it has {before['score']:.3f}.",
    ]
    sizes = pandas.DataFrame([before, after])
    table = numbers(
        "The smaller model beside the whole one", "Both opened from their checkpoints and measured here.", sizes
    )
    beside = Table(sizes, [table], advice.provenance, "sizes")
    own = "layerscope advise CLASSIFIER --task TASK --tolerance 0.01 --save smaller -o out"
    return Outcome(said, {"sizes": beside, "advice": advice}, own, [table, *advice.figures()])


def _plan(advice: ls.Advice, tolerance: float) -> tuple[ls.LayerPlan, Any, str]:
    """The advice, or, where no block can go within the tolerance, the cut that loses least, with a word on it."""
    from layerscope.cutting.plan import integers

    sure = f"with {advice.confidence:.0%} confidence"
    if advice.choice.removed(advice.evaluator.model.depth):
        why = f"The smallest model was looked for that is within {tolerance:g} of the whole one {sure}."
        return advice.choice, advice.row, why
    table = advice.frame[advice.frame["savable"] & (advice.frame["removed"] > 0)]
    row = table.sort_values("chosen_on").iloc[-1]
    rows = f" (that would take about {advice.rows_needed:,} texts)" if advice.rows_needed is not None else ""
    why = f"No block can go at a loss of at most {tolerance:g} {sure}{rows}; the cut that loses least is taken."
    return ls.LayerPlan(integers(row["blocks"])), row, why


def _measured(model: ls.Model, folder: Path, stage: Stage) -> dict[str, Any]:
    """A checkpoint's size on disk, and what the model opened from it scores and takes."""
    from layerscope.cutting.costs import Costs

    costs, everything = Costs(model), ls.LayerPlan(range(1, model.depth + 1))
    return {
        "model": model.name,
        "blocks": model.depth,
        "parameters": costs.parameters(everything),
        "megabytes": sum(file.stat().st_size for file in folder.glob("*.safetensors")) / 1e6,
        "latency_1_ms": 1000 * costs.latency(everything, 1),
        "latency_32_ms": 1000 * costs.latency(everything, 32),
        "score": float(ls.evaluate(model, stage.task, **stage.scored)),
    }


def _milliseconds(sizes: Mapping[str, Any]) -> str:
    return f"{sizes['latency_1_ms']:.1f} ms for a text of 128 tokens and {sizes['latency_32_ms']:.0f} ms for 32"


UNTUNED = "untuned"


def tune(stage: Stage) -> Outcome:
    s, trainings = stage.settings, stage.trainings
    scores, majority = [f"{t.score:.3f}" for t in trainings.trainings], trainings.trainings[0].majority
    said = (
        f"{s.steps} steps of {s.batch} texts with seeds {listed([str(seed) for seed in s.seeds])} give "
        f"{trainings.metric} {' and '.join(scores)} on {len(stage.texts)} validation texts; always the most frequent "
        f"class would give {majority:.3f}."
    )
    bars = BarsFigure(
        title="Score of each seed",
        shows=f"{trainings.metric} on {len(stage.texts):,} validation texts of trainings that differ in their seed "
        "alone.",
        reading="A tuned model should stand well above the dashed line, and seeds near one another.",
        caveat=caveat("A short training with one learning rate, and no intervals.", len(stage.texts)),
        names=tuple(f"seed {t.job.seed}" for t in trainings.trainings),
        values=tuple(t.score for t in trainings.trainings),
        y_name=trainings.metric,
        references=((MAJORITY, majority),),
        n=len(stage.texts),
    )
    table = trainings.figures()[-1]
    own = "layerscope tune MODEL --task TASK --seeds 2 -o tuned"
    return Outcome([said, stage.about], {"trainings": trainings}, own, [bars, table])


def compare(stage: Stage) -> Outcome:
    models = [stage.base, *stage.tuned[:2]]
    names = [UNTUNED, *(model.name for model in models[1:])]
    reps = [ls.extract(model, stage.task, pool="cls", **stage.scored) for model in models]
    base, tuned, other = zip(reps, names, strict=True)
    pairs = {
        "ORIG-ORIG: the untuned model with itself": (base, base),
        "FT-ORIG: tuned with untuned": (tuned, base),
        "FT-FT: the tuned model with itself": (tuned, tuned),
        "FT[1]-FT[2]: two seeds": (tuned, other),
    }
    matrices = {name: _similarity(*pair) for name, pair in pairs.items()}
    untuned, changed, own, seeds = (each["cka"].values for each in matrices.values())
    top = stage.base.depth
    moved = int(min(range(1, top + 1), key=lambda layer: changed[layer, layer]))
    said = [
        f"How much tuning changed each layer: CKA with the same layer of the untuned model is {changed[1, 1]:.2f} at "
        f"layer 1 and {changed[top, top]:.2f} at layer {top}; it is least at layer {moved} "
        f"({changed[moved, moved]:.2f}).",
        f"The top two layers have CKA {untuned[top - 1, top]:.2f} before tuning and {own[top - 1, top]:.2f} after it; "
        f"the top layers of two seeds have {seeds[top, top]:.2f} with one another.",
    ]
    named = {
        f"{pair.split(':')[0].lower().replace('[', '').replace(']', '')}-{measure}": (pair, similarity)
        for pair, measures in matrices.items()
        for measure, similarity in measures.items()
    }
    figures = [
        replace(similarity.heatmap(), title=f"{pair}: {similarity.measure}", group=pair)
        for pair, similarity in named.values()
    ]
    command = "layerscope compare BASE TUNED --task TASK --measure cka,cka_debiased -o out"
    return Outcome(said, {name: similarity for name, (_, similarity) in named.items()}, command, figures)


def _similarity(rows: tuple[Any, str], columns: tuple[Any, str]) -> dict[str, ls.Similarity]:
    same = rows[1] == columns[1]
    names = [rows[1]] if same else [rows[1], columns[1]]
    return ls.compare(rows[0], None if same else columns[0], measure=["cka", "cka_debiased"], names=names)


def attention(stage: Stage) -> Outcome:
    s, models = stage.settings, [stage.base, stage.tuned[0]]
    options: dict[str, Any] = {"limit": s.attended, "max_length": s.max_length, "names": [UNTUNED, models[1].name]}
    matrices = ls.compare(*models, measure=["attention_js", "attention_pearson"], task=stage.task, **options)
    same = matrices["attention_js"].values.diagonal()
    layers = range(1, len(same) + 1)
    least, most = (int(pick(layers, key=lambda layer: same[layer - 1])) for pick in (min, max))
    texts = min(s.attended, len(stage.texts))
    said = (
        f"Between the untuned and the tuned model attention is most alike in layer {most} (1 - Jensen-Shannon "
        f"divergence {same[most - 1]:.3f}) and least in layer {least} ({same[least - 1]:.3f}), over {texts} texts."
    )
    own = "layerscope compare BASE TUNED --task TASK --measure attention_js --limit 200 -o out"
    return Outcome([said], matrices, own)


def specialty(stage: Stage) -> Outcome:
    s = stage.settings
    choice = ls.recommend(stage.base, stage.task, limit=s.learned, max_length=s.max_length)
    assert choice.strategies is not None
    table = choice.strategies.frame
    said = [choice.reason, *_trained(table[table["resolved"] == choice.strategy])]
    if choice.probe is not None and choice.probe.best is not None:
        row = choice.frame.set_index("layer").loc[choice.probe.best]
        bounds = f"{row['probe']:.3f} ({row['probe_low']:.3f} to {row['probe_high']:.3f})"
        said.append(f"The probes read most from layer {choice.probe.best}: {choice.probe.name} {bounds}.")
    own = "layerscope specialty MODEL --task TASK -o out"
    return Outcome(said, {"specialty": choice}, own)


def _trained(row: DataFrame) -> list[str]:
    """What the recommended strategy trains, in a sentence, where it is in the table."""
    if not len(row):
        return []
    share = float(row["trainable"].iloc[0]) / float(row["parameters"].iloc[0])
    return [f"{row['resolved'].iloc[0]} trains {share:.0%} of the parameters."]


def align(stage: Stage) -> Outcome:
    s, (first, second) = stage.settings, stage.tuned[:2]
    layers = [stage.base.depth // 2, stage.base.depth]
    options = {"inn": {"start": "linear", "steps": s.map_steps, "hidden": s.map_width}}
    methods = ("mean", "linear", "inn")
    study = ls.alignment_study(
        {first.name: first, second.name: second},
        stage.task,
        layers=layers,
        methods=methods,
        pairs=1,
        train=s.learned,
        test=s.texts,
        max_length=s.max_length,
        options=options,
    )
    target, source = (first, second) if study.frame["target"].iloc[0] == first.name else (second, first)
    injected = ls.injection_study(
        source, target, stage.task, methods=("identity", *methods), train=s.learned, options=options, **stage.scored
    )
    said = [_error_sentence(study.frame, layers[-1]), _injection_sentence(injected.frame, source.name, target.name)]
    own = "layerscope align A B --task TASK -o out, and layerscope inject A B --task TASK --layers all -o out"
    maps, head = study.figures(), injected.figures()[0]
    return Outcome(
        said, {"alignment": study, "injection": injected}, own, [maps[0], head, maps[-1]], {"map_steps": s.map_steps}
    )


def _error_sentence(frame: DataFrame, layer: int) -> str:
    part = frame[(frame["split"] == "test") & (frame["layer"] == layer)].set_index("method")["relative"]
    return (
        f"Maps from {frame['source'].iloc[0]} to {frame['target'].iloc[0]} at layer {layer}, on texts that they did "
        f"not learn from, leave {part['linear']:.0%} of the spread unexplained when linear and {part['inn']:.0%} when "
        f"an invertible network; a shift alone leaves {part['mean']:.0%}."
    )


def _injection_sentence(frame: DataFrame, source: str, target: str) -> str:
    scores, first = frame.set_index("method")["score"], frame.iloc[0]
    return (
        f"The head of {target} on states of {source} has {first['metric']} {scores['identity']:.3f} as they are, "
        f"{scores['linear']:.3f} after the linear map and {scores['inn']:.3f} after the invertible network; on its own "
        f"states it has {first['target_score']:.3f}, on noise {scores['random embedding']:.3f}."
    )


@dataclass(frozen=True)
class Step:
    """One step: a word for its folder, the command it stands for, what is said before it, and what does it."""

    name: str
    kind: str
    title: str
    act: Callable[[Stage], Outcome]
    tuned: bool = True  # whether it needs the tuned models
    leaves: str = ""  # a folder besides its record
    missing: Callable[[Settings], str] = lambda _: ""  # what must be installed for it, in a sentence


STEPS = (
    Step("tune", "tune", "Tune {model} on {task}, with two seeds", tune),
    Step("layers", "compare", "Which layers represent the same thing", compare),
    Step("attention", "compare", "Do the tuned model's layers attend as before", attention),
    Step("cuts", "truncate", "What each block is worth: truncation and skips", truncate),
    Step("specialty", "specialty", "Which layers to tune, chosen before any tuning", specialty, tuned=False),
    Step("alignment", "align", "Are two seeds the same up to a map", align),
    Step("smaller", "advise", "A smaller model, saved and reopened", advise, leaves=SMALLER),
    Step(
        "language",
        "advise",
        "A language model, {language_model}: which blocks it can lose",
        language,
        tuned=False,
        leaves=SMALLER_LM,
        missing=missing,
    ),
)
