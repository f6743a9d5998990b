"""`ls.heal`: cut a model, train what is left a little, merge, save, and compare it with what it was."""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from layerscope.cutting.cutting import cut, refuse_adapters
from layerscope.cutting.plan import LayerPlan
from layerscope.data import task as open_task
from layerscope.drawing.words import listed
from layerscope.errors import InputError, check_seed, choose, log
from layerscope.models import Model, load
from layerscope.models.lineage import ORIGIN, RECORD
from layerscope.store import check_free, produce_all
from layerscope.team import Team
from layerscope.tuning.aims.aim import Teaching, check_teacher
from layerscope.tuning.aims.embeddings import DISTANCES
from layerscope.tuning.healing_job import HealingJob
from layerscope.tuning.healing_parts import asked_of, check_healable, make_aim
from layerscope.tuning.healing_results import Healing
from layerscope.tuning.hyperparameters import Hyperparameters, hyperparameters
from layerscope.tuning.job import Lesson
from layerscope.tuning.method import Method, method_of
from layerscope.tuning.methods.lora import Lora
from layerscope.tuning.peft import head_names
from layerscope.tuning.registry import METHODS
from layerscope.tuning.strategy import Asked, Strategy
from layerscope.tuning.trainer import check_trackers

STEPS = 300
_LOOKS = 5  # at what is held out, in a healing that is counted in steps
_RANK = 16
# What suits texts that are read token by token, and what suits the answers to whole texts.
_TOKENS = {"batch": 16, "max_length": 512, "schedule": "cosine", "warmup": 0.05}
_TEXTS = {"batch": 16, "max_length": 128, "epochs": 3.0}
_RATES = {"tokens": {"lora": 1e-3, "finetune": 2e-4}, "texts": {"lora": 5e-4, "finetune": 3e-5}}


@dataclass(eq=False)
class HealingPlan:
    """What `heal` was asked for, with everything checked and nothing trained."""

    job: HealingJob
    plan: LayerPlan | None

    def produce(self) -> Healing:
        """The healing, from the store where it is there."""
        return Healing(self.job, produce_all([self.job], Team.current())[0], self.plan)


def heal(
    model: Any,
    plan: Any,
    task: Any,
    *,
    method: str | Method = "lora",
    strategy: Asked | None = None,
    teacher: Any = None,
    distill: bool = False,
    mix: float | None = None,
    distance: str = "cosine",
    keep_teacher: int | None = None,
    steps: int | None = None,
    size: int | None = None,
    metric: str | None = None,
    seed: int = 0,
    out: str | Path | None = None,
    **options: Any,
) -> Healing:
    """Cut a model and train what is left a little, so that it answers again as it did.

    A language model learns from running text, a classifier from labels, an embedding model from the embeddings of the
    uncut model; with `distill` a language model or a classifier learns from the uncut model's whole distribution too.
    The weights with the least loss on held-out texts are merged into a standard checkpoint, which is reopened and
    compared. It is kept in the store, so the same call comes back at once, and an interrupted one goes on.

    Args:
        model: The uncut model; or, where `plan` is None, a model that was cut before.
        plan: The `LayerPlan` to cut by, a model that was cut from `model`, or None.
        task: Texts, as `ls.task` takes them. Of a file of running text the end is held out.
        method: lora (its updates are merged into the weights) or finetune. Methods whose additions no standard
            checkpoint can hold are refused.
        strategy: Which of the blocks that are left are trained, as in `ls.tune`: all of them if not given; `(L-2, L,
            L)` with finetune trains the head and the last three blocks (Lu et al. 2024). The head stays on top.
        teacher: A model to learn from in place of the uncut one; it must read the same tokens.
        distill: Learn from the uncut model's distribution. An embedding model always does.
        mix: The teacher's share of the loss, from 0 to 1; the rest is the loss of the texts or labels themselves.
        distance: Of embeddings alone: cosine or mse (mean squared error).
        keep_teacher: Run the teacher once and keep so many of its likeliest outputs at every place, instead of asking
            it in every step. What that leaves out is measured and said.
        steps: How many steps; 300 on running text if neither steps nor epochs are given, else three epochs.
        size: The rank of LoRA.
        metric: The metric to score by, where it is not the task's own.
        seed: Decides LoRA's first weights, the order of rows and dropout.
        out: A folder that gets the healed checkpoint.
        **options: Hyperparameters, as in `ls.tune`; on running text `train_limit` and `validation_limit` count
            windows. `bf16` is on where a GPU has it, `checkpointing` saves memory, `report_to` names trackers.

    Returns:
        A `Healing`, which is a `Training`: `.scores` of the uncut, the cut and the healed model, `.model`, `.path`.

    Example:
        >>> import layerscope as ls
        >>> few = {"steps": 2, "batch": 4, "max_length": 16, "train_limit": 16, "validation_limit": 8}
        >>> healing = ls.heal("garden:gpt2-s0", ls.LayerPlan([1, 2, 4]), ls.task("pydocs", kind="text"), **few)
        >>> healing.metric, sorted(healing.scores)
        ('perplexity', ['cut', 'healed', 'uncut'])
    """
    taught = {"teacher": teacher, "distill": distill, "mix": mix, "distance": distance, "keep_teacher": keep_teacher}
    about: dict[str, Any] = {"method": method, "strategy": strategy, "size": size, "metric": metric, "seed": seed}
    planned = plan_healing(model, plan, task, steps=steps, **about, **taught, **options)
    if out is not None:
        check_free(Path(out), RECORD)
    healing = planned.produce()
    if out is not None and Team.current().is_main:
        healing.copy_to(out)
    return healing


def plan_healing(
    model: Any,
    plan: Any,
    task: Any,
    *,
    method: str | Method = "lora",
    strategy: Asked | None = None,
    teacher: Any = None,
    distill: bool = False,
    mix: float | None = None,
    distance: str = "cosine",
    keep_teacher: int | None = None,
    steps: int | None = None,
    size: int | None = None,
    metric: str | None = None,
    seed: int = 0,
    **options: Any,
) -> HealingPlan:
    """The plan of what `heal` takes: everything is checked, and nothing is trained."""
    seed = check_seed(seed)
    check_trackers(options.get("report_to"))
    chosen = _method(method, size)
    uncut, smaller, done = _models(model, plan)
    check_healable(smaller)
    if not chosen.adds_float32 or head_names(smaller):
        smaller.require_precision("healing")
    data = open_task(task).with_metric(metric)
    wants_teacher = distill or teacher is not None or smaller.head == "none"
    asked, data = asked_of(smaller, data, wants_teacher)
    taught = _teaching(smaller, uncut, asked, teacher, distill, mix, distance, keep_teacher)
    settings = _settings(smaller, asked, chosen, steps, options)
    resolved = Strategy.parse(strategy or "full").resolve(smaller.depth)
    if int(resolved.head) != smaller.depth:
        raise InputError(
            f"The strategy {strategy} puts the head on layer {resolved.head}, and a cut model has it on its last, "
            f"{smaller.depth}; cut it there first, or write L for the head."
        )
    chosen.check(smaller, resolved)
    started = time.perf_counter()
    aim, learned, held = make_aim(smaller, data, asked, settings, taught)
    log.info(
        "%d %s to learn from and %d held out were read in %.1f s.",
        *(len(aim.learned.items), aim.rows_are, len(aim.scored.items), time.perf_counter() - started),
    )
    return HealingPlan(
        HealingJob(Lesson(smaller, data, learned, held), resolved, chosen, settings, seed, aim, uncut), done
    )


def _method(method: str | Method, size: int | None) -> Method:
    """The method, if what it makes can be merged; LoRA on every projection."""
    chosen = method_of(method, size if size is not None or method != Lora.name else _RANK)
    if not chosen.standard:
        able = [name for name in METHODS if METHODS[name].standard]
        raise InputError(
            f"What {chosen.name} adds cannot be merged into the weights, so no standard checkpoint could hold the "
            f"healed model; heal with {listed(able)}."
        )
    if isinstance(chosen, Lora) and method == Lora.name:
        return Lora(chosen.size, everywhere=True)
    return chosen


def _models(model: Any, plan: Any) -> tuple[Model | None, Model, LayerPlan | None]:
    """The uncut model where it is known, the cut one, and the plan where there is one."""
    whole = load(model)
    refuse_adapters(whole)
    if plan is None:
        return None, whole, None
    if isinstance(plan, LayerPlan):
        if not plan.removed(whole.depth):
            raise InputError(f"The plan removes no block of {whole.name}; there is nothing to heal.")
        smaller = load(cut(whole, plan))
        smaller.name = f"{whole.name} without blocks {_gone(plan, whole.depth)}"
        return whole, smaller, plan
    smaller = load(plan)
    refuse_adapters(smaller)
    return whole, smaller, None


def _gone(plan: LayerPlan, depth: int) -> str:
    from layerscope.cutting.plan import spans

    return spans(plan.removed(depth))


def _teaching(
    model: Model,
    uncut: Model | None,
    asked: str,
    teacher: Any,
    distill: bool,
    mix: float | None,
    distance: str,
    keep: int | None,
) -> Teaching:
    """Who teaches, after checking that it can."""
    choose("distance", distance, DISTANCES)
    needed = asked == "embeddings"
    if distance != DISTANCES[0] and not needed:
        raise InputError(
            f"distance is {distance}, which is between embeddings, and {model.name} gives none; leave it out."
        )
    if teacher is None and not distill and not needed:
        for name, value in (("mix", mix), ("keep_teacher", keep)):
            if value is not None:
                raise InputError(f"{name} is {value}, and nothing teaches: give distill=True (--distill) or a teacher.")
        return Teaching()
    if teacher is None and uncut is None:
        steps = getattr(model.network, ORIGIN, [])
        known = f" It was cut from {steps[0]['from']}." if steps else ""
        raise InputError(
            f"{model.name} was given as it is, so the uncut model to learn from is not known; give it as teacher= "
            f"(--teacher), or give that model and what to cut.{known}"
        )
    chosen = load(teacher) if teacher is not None else uncut
    assert chosen is not None
    check_teacher(model, chosen)
    if mix is not None and not 0 < mix <= 1:
        raise InputError(f"mix is {mix}; it is the teacher's share of the loss, above 0 and at most 1.")
    if needed and mix is not None:
        raise InputError("mix is for texts or labels beside the teacher, and embeddings have the teacher alone.")
    if keep is not None and asked in ("classes", "embeddings"):
        raise InputError(
            "keep_teacher keeps the likeliest of many outputs at every token, and this head has one answer per text; "
            "leave it out."
        )
    return Teaching(chosen, 0.5 if mix is None else mix, keep, distance)


def _settings(model: Model, asked: str, method: Method, steps: int | None, options: dict[str, Any]) -> Hyperparameters:
    """The hyperparameters: what suits what is learned, and what was asked for."""
    given = {name: value for name, value in options.items() if value is not None}
    if steps is not None:
        if "max_steps" in given:
            raise InputError("Both steps and max_steps were given; they say the same thing twice, so give one of them.")
        given["max_steps"] = steps
    tokens = asked not in ("classes", "embeddings")
    usual: dict[str, Any] = dict(_TOKENS if tokens else _TEXTS)
    rates = _RATES["tokens" if tokens else "texts"]
    usual["learning_rate"] = rates.get(method.name, rates["finetune"])
    usual["bf16"] = model.device.type == "cuda" and torch.cuda.is_bf16_supported()
    if model.positions is not None:
        usual["max_length"] = min(usual["max_length"], model.positions)
    if asked == "embeddings" and model.embedding is not None and model.embedding.max_length:
        usual["max_length"] = min(usual["max_length"], model.embedding.max_length)
    if "max_steps" in given or "epochs" in given:
        usual.pop("epochs", None)
    elif tokens:
        usual["max_steps"] = STEPS
    both = {**usual, **given}
    if both.get("max_steps") is not None and "evaluate_every" not in both and int(both["max_steps"]) > 0:
        both["evaluate_every"] = math.ceil(int(both["max_steps"]) / _LOOKS)
    chosen = hyperparameters(None, Strategy.parse("full"), method, "", **both)
    if len(chosen.rates) > 1:
        raise InputError("One learning rate is needed to heal; several were given.")
    if model.positions is not None and chosen.max_length > model.positions:
        raise InputError(f"max_length is {chosen.max_length}, and {model.name} reads at most {model.positions} tokens.")
    return chosen
