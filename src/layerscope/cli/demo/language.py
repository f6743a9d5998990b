"""The step of `layerscope demo` on a language model: which blocks it can lose, by several rules, and one cut of it."""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

import layerscope as ls
from layerscope.cli.demo.stage import Outcome, Settings, Stage
from layerscope.drawing.words import listed
from layerscope.errors import ModelError
from layerscope.evaluation.running import BETWEEN
from layerscope.models.sources import DEMO_LM, demo_lm_file

if TYPE_CHECKING:
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
    from layerscope.cli.options import integers

    if advice.choice.removed(advice.exam.model.depth):
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
