"""`ls.heal`: cuts a model, trains what is left a little, merges, saves, and compares it with what it was.

Also which texts heal a cut model and which are held out, and the objective that fits its head.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import numpy as np
import torch

from layerscope.cutting.cut import cut_network, refuse_adapters
from layerscope.cutting.model_card import PATCH
from layerscope.cutting.patch import patch as apply_patch
from layerscope.cutting.patch_texts import TOKENS, WINDOW, deal
from layerscope.cutting.plan import WORDS_OF_PLANS, LayerPlan, spans
from layerscope.data import Examples, Task, TaskSource
from layerscope.data import task as open_task
from layerscope.data.splits import train_validation_split
from layerscope.distributed import Team
from layerscope.drawing.captions import listed
from layerscope.errors import InputError, ModelError, check_seed, choose, log
from layerscope.evaluation.evaluate import select_evaluator
from layerscope.evaluation.evaluator import refuse
from layerscope.evaluation.perplexity import PerplexityEvaluator
from layerscope.models import Model, load
from layerscope.models.devices import AUTO, is_offloaded
from layerscope.models.heads import HEADS
from layerscope.models.lineage import ORIGIN, RECORD, known_rows
from layerscope.models.lineage import learned as learned_before
from layerscope.models.load import ModelSource, load_whole
from layerscope.models.memory import Footprint, check_training
from layerscope.models.sources import folder_of
from layerscope.registry import METHODS
from layerscope.resampling import ending
from layerscope.store import check_free, produce_all
from layerscope.tuning.healing import Healing
from layerscope.tuning.healing_job import HealingJob, PatchedStart
from layerscope.tuning.hyperparameters import Hyperparameters, check_trackers, hyperparameters
from layerscope.tuning.method import Method, method_of
from layerscope.tuning.methods.lora import Lora
from layerscope.tuning.objectives.base import Distillation, Objective, check_teacher
from layerscope.tuning.objectives.embeddings import DISTANCES, EmbeddingObjective
from layerscope.tuning.patch_job import PatchJob, PatchMethod
from layerscope.tuning.peft import head_names
from layerscope.tuning.strategy import Asked, Strategy
from layerscope.tuning.training_job import TrainingData

HELD_OUT = 0.1  # of running text that comes in one split
WINDOWS = 64  # of held-out running text, where no other number is asked for
_CHARACTERS = 8  # of a token, at most as a rule: so much text is read for so many tokens


def select_objective(model: Model, task: Task, taught: bool) -> tuple[type[Objective], Task]:
    """Return the objective that fits a model's head, and the task as it is read for that.

    `taught` says whether a teacher is learned from. Raises InputError where the task cannot heal the model.
    """
    head = HEADS[model.head]
    if not head.objective:
        refuse(model, task, task.kind)
    objective: type[Objective] = resolve_name(f"layerscope.tuning.objectives.{head.objective}")
    if objective.needs_teacher:
        return objective, task
    if head.classifier and not task.labelled:
        if (task.kind == "choice") != model.multiple_choice or task.kind in ("tags", "text"):
            raise InputError(
                f"{task.name} cannot heal {model.name} ({type(model.network).__name__}), which {head.words}; "
                "give texts or choices as it reads them."
            )
        if not taught:
            raise InputError(
                f"{task.name} has no labels; name the column that holds them (label=, --label), or heal on the answers "
                "of the uncut model: distill=True, --distill."
            )
        return objective, task
    evaluator, read = select_evaluator(model, task)
    if evaluator.not_healed:
        raise InputError(f"{task.name} {evaluator.not_healed}")
    return objective, read


def parts_of(
    task: Task, model: Model, limits: tuple[int | None, int | None], running: bool
) -> tuple[Examples, Examples]:
    """Return the texts to learn from and those to hold out, without what the model learned from before.

    Of running text in one split the end is held out; of other texts a fifth, drawn with every class in proportion.
    """
    if running and len(task.splits) == 1:
        whole = task.split()
        if len(whole) < 2:
            raise InputError(
                f"{task.name} is one text, and some of it must be held out; give two files, one to learn from and one "
                "to hold out (a folder with train and validation), or one text per line."
            )
        at = ending([len(text) + 1 for text in whole.texts], HELD_OUT)
        learned, held = whole.take(slice(0, at)), whole.take(slice(at, None))
        log.warning(
            "%s (%s) is used for learning and scoring: of its %d texts, the last %d are held out and scored.",
            *(task.name, whole.split, len(whole), len(held)),
        )
    elif running:
        learned, held = task.split(learning=True), task.split()
    else:
        # What the model learned from is known by the identity of the whole split.
        learned, held = train_validation_split(task, limits, whole=bool(learned_before(model.network)))
    seen = known_rows([model], held, in_other_data=len(task.splits) == 1)
    if seen.all():
        raise InputError(
            f"{model.name} has learned from all {len(held)} texts of {task.name} ({held.split}) that were to be held "
            "out; give other texts."
        )
    if seen.any():
        log.warning("%s learned from %d of the texts to be held out; they are left out.", model.name, seen.sum())
        held = held.take(~seen)
    return learned, held


def _parts(kind: Any, model: Model, task: Task, hyperparameters: Hyperparameters) -> tuple[Examples, Examples]:
    """Return the texts of a task that an objective of a kind may learn from, and those that it may hold out."""
    limits = (hyperparameters.train_limit, hyperparameters.validation_limit)
    return parts_of(task, model, limits, running=kind.by_token and task.kind == "text")


def make_objective(
    kind: Any,
    model: Model,
    task: Task,
    parts: tuple[Examples, Examples],
    hyperparameters: Hyperparameters,
    distillation: Distillation,
) -> tuple[Objective, Examples, Examples]:
    """Return the objective of a kind, and the texts of both parts that are really learned from and held out."""
    h, (learned, held) = hyperparameters, parts
    if not kind.by_token:
        return kind(model, task, learned, held, distillation, h.max_length), learned, held
    evaluator: Any = select_evaluator(model, task)[0]
    if evaluator is not PerplexityEvaluator:
        learned, held = learned.take(slice(h.train_limit)), held.take(slice(h.validation_limit))
        evaluators = (evaluator(model, task, part, h.max_length) for part in (learned, held))
        return kind(*evaluators, distillation), learned, held
    steps = None if h.max_steps is None else h.max_steps * h.batch * h.accumulate
    most = min((n for n in (steps, h.train_limit) if n is not None), default=None)
    windows, learned = _windows(model, task, learned, h.max_length, most)
    scored, held = _windows(model, task, held, h.max_length, h.validation_limit or WINDOWS)
    return kind(windows, scored, distillation), learned, held


def _windows(
    model: Model, task: Task, examples: Examples, max_length: int, most: int | None
) -> tuple[PerplexityEvaluator, Examples]:
    """Return at most so many windows of running text, and the texts that they are made of.

    Long corpora are not tokenised beyond what the windows need, estimated by characters and doubled where it is too
    little.
    """
    if most is None:
        return PerplexityEvaluator(model, task, examples, max_length), examples
    sizes = np.cumsum([len(text) + 2 for text in examples.texts])
    wanted = most * max_length * _CHARACTERS
    while True:
        count = min(int(np.searchsorted(sizes, wanted)) + 1, len(examples))
        evaluator = PerplexityEvaluator(model, task, examples.take(slice(0, count)), max_length)
        if len(evaluator.examples) >= most or count == len(examples):
            break
        wanted *= 2
    if len(evaluator.examples) <= most:
        return evaluator, examples.take(slice(0, count))
    return evaluator.subset(slice(most)), examples.take(slice(0, evaluator.texts_within(most)))


def check_healable(model: Model) -> None:
    """Raise ModelError where this model cannot be trained: it changes with padding, is quantised, or is offloaded."""
    if is_offloaded(model.network):
        raise ModelError(
            f"Some weights of {model.name} wait on the host or the disk, as the GPU has no room for them, and such a "
            "model cannot be trained; open it in 16 bits (dtype=, --dtype), or take a GPU with more memory."
        )
    if model.architecture.unpadded:
        raise ModelError(
            f"The states of {model.name} ({model.architecture.family}) change with padding, and training pads the "
            "texts of a batch to one length: what is healed would answer unlike what is evaluated."
        )
    if getattr(model.network, "hf_quantizer", None) is not None:
        raise ModelError(f"{model.name} is quantised; heal the model that it was made from, then quantise that.")


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
        """Return the healing, from the store where it is there."""
        return Healing(self.job, produce_all([self.job], Team.current())[0], self.plan)


def heal(
    model: ModelSource,
    plan: LayerPlan | ModelSource | str | None,
    task: TaskSource,
    *,
    method: str | Method = "lora",
    patch: TaskSource | None = None,
    other: TaskSource | None = None,
    strategy: Asked | None = None,
    teacher: ModelSource | None = None,
    distill: bool = False,
    mix: float | None = None,
    distance: str = "cosine",
    keep_teacher: int | None = None,
    steps: int | None = None,
    size: int | None = None,
    metric: str | None = None,
    seed: int = 0,
    learning_rate: float | None = None,
    epochs: float | None = None,
    batch: int | None = None,
    accumulate: int | None = None,
    warmup: float | None = None,
    schedule: str | None = None,
    weight_decay: float | None = None,
    adam_epsilon: float | None = None,
    max_length: int | None = None,
    bf16: bool | None = None,
    evaluate_every: int | None = None,
    patience: int | None = None,
    checkpointing: bool | None = None,
    report_to: str | Sequence[str] | None = None,
    cache: bool | None = None,
    cache_dtype: str | None = None,
    cache_limit: float | None = None,
    train_limit: int | None = None,
    validation_limit: int | None = None,
    out: str | Path | None = None,
) -> Healing:
    """Cut a model and train what is left a little, so that it answers again as it did.

    A language model learns from running text, a classifier from labels, an embedding model from the embeddings of the
    uncut model; with `distill` a language model or a classifier learns from the uncut model's whole distribution too.
    The weights with the least loss on held-out texts are merged into a standard checkpoint, which is reopened and
    compared. It is kept in the store, so the same call comes back at once, and an interrupted one goes on.

    Args:
        model: The uncut model, as `ls.load` takes it: a folder, a hub id, `id@revision`, `garden:NAME`, ..; or, where
            no plan is given, a model that was cut before.
        plan: What to cut: a `LayerPlan`, words such as `without 13-19,27`, a model that was cut from `model`, or None.
        task: A task of the registry (`layerscope tasks` lists them), a file, a folder, a hub id, or a `Task`. Of a file
            of running text the end is held out.
        method: lora (its updates are merged into the weights) or finetune; or patch, which trains nothing: what the cut
            takes away is solved for on the texts, whose labels are not used, and folded into weights that stay.
            Methods whose additions no standard checkpoint can hold are refused.
        patch: Texts to patch the cut model on before it is trained, as `method="patch"` does; labels are not used.
        other: With a patch: texts of another domain, on which it must not be worse than the plain cut either.
        strategy: Which of the blocks that are left are trained, as in `ls.tune`: all of them if not given; `(L-2, L,
            L)` with finetune trains the head and the last three blocks (Lu et al. 2024). The head stays on top.
        teacher: A model to learn from in place of the uncut one; it must read the same tokens.
        distill: Learn from the uncut model's distribution. An embedding model always does.
        mix: The teacher's share of the loss, above 0 and at most 1; 0.5 if not given. The rest is the loss of the texts
            or labels themselves.
        distance: Of embeddings alone: cosine or mse (mean squared error).
        keep_teacher: Run the teacher once and keep its N likeliest outputs at every token, instead of asking it in
            every step. What that leaves out is measured and said.
        steps: How many steps; 300 on running text if neither steps nor epochs are given, else three epochs.
        size: The rank of LoRA; 16 if not given.
        metric: The metric to score by, where it is not the task's own.
        seed: Decides LoRA's first weights, the order of rows and dropout.
        learning_rate: On running text 1e-3 for LoRA and 2e-4 for finetune if not given; else 5e-4 and 3e-5.
        epochs: Passes over the texts, instead of steps.
        batch: Texts or windows per step; 16 if not given.
        accumulate: Add up the gradients of N steps.
        warmup: Warm-up: a share of the steps, or (1 and above) their number; 0.05 on running text, else 0.06, if not
            given.
        schedule: How the learning rate falls: `cosine` on running text, else `linear`, if not given; or `constant`,
            `constant_with_warmup`.
        weight_decay: Weight decay of the optimizer; none if not given.
        adam_epsilon: Adam's epsilon; 1e-8 if not given.
        max_length: Tokens of a window or a text: 512 of running text, else 128, if not given.
        bf16: Mixed precision in bfloat16; on by default where a GPU has it.
        evaluate_every: Score what is held out every N steps; five times in all, or after every epoch, if not given.
        patience: Stop after N looks without a better score.
        checkpointing: Run blocks again in the backward pass: less memory, more time.
        report_to: The Trainer's trackers: tensorboard, wandb, trackio, mlflow; several, separated by commas.
            TensorBoard's event files are in `runs`, or TENSORBOARD_LOGGING_DIR, a folder for each training.
        cache: Keep the output of frozen blocks instead of running them in every epoch, as is done if nothing is said.
        cache_dtype: What that is kept in: `float32` (the default) or `bfloat16`.
        cache_limit: How many GiB may be kept so; 20 if not given.
        train_limit: Use only the first N texts, or windows of running text.
        validation_limit: Use only the first N held-out texts; 64 windows of running text if not given.
        out: A folder that gets the healed checkpoint.

    Returns:
        A `Healing`, which is a `Training`: `.scores` of the uncut, the cut and the healed model, `.model`, `.path`.

    Example:
        >>> import layerscope as ls
        >>> few = {"steps": 2, "batch": 4, "max_length": 16, "train_limit": 16, "validation_limit": 8}
        >>> healing = ls.heal("garden:gpt2-s0", ls.LayerPlan([1, 2, 4]), ls.task("pydocs", kind="text"), **few)
        >>> healing.metric, sorted(healing.scores)
        ('perplexity', ['cut', 'healed', 'uncut'])
    """
    taught: dict[str, Any] = {
        "teacher": teacher,
        "distill": distill,
        "mix": mix,
        "distance": distance,
        "keep_teacher": keep_teacher,
    }
    choices: dict[str, Any] = {"method": method, "strategy": strategy, "size": size, "metric": metric, "seed": seed}
    choices |= {"patch": patch, "other": other}
    options = {name: value for name, value in locals().items() if name in Hyperparameters.model_fields}
    planned = plan_healing(model, plan, task, steps=steps, **choices, **taught, **options)
    if out is not None:
        check_free(Path(out), RECORD, folder_of(model), folder_of(plan))
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
    patch: Any = None,
    other: Any = None,
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
    """Return the plan for the arguments of `heal`: everything is checked, and nothing is trained."""
    seed = check_seed(seed)
    check_trackers(options.get("report_to"))
    if method == PATCH:
        trained = {"patch": patch, "strategy": strategy, "teacher": teacher, "distill": distill, "mix": mix}
        trained |= {"distance": None if distance == DISTANCES[0] else distance, "keep_teacher": keep_teacher}
        return _plan_patch(model, plan, task, other, metric, seed, {**trained, "steps": steps, "size": size, **options})
    chosen = _method(method, size)
    uncut, smaller, done = _models(model, plan, chosen)
    if patch is not None:
        _check_patchable(uncut, smaller, done)
    elif other is not None:
        raise InputError("other is for a patch: give patch= (--patch), or method='patch' (--method patch).")
    check_healable(smaller)
    data = open_task(task).with_metric(metric)
    kind, data = select_objective(smaller, data, distill or teacher is not None)
    taught = _distillation(smaller, uncut, kind, teacher, distill, mix, distance, keep_teacher)
    settings = _settings(smaller, kind, chosen, steps, options)
    resolved = Strategy.parse(strategy or "full").resolve(smaller.depth)
    if int(resolved.head) != smaller.depth:
        raise InputError(
            f"The strategy {strategy} puts the head on layer {resolved.head}, and a cut model has it on its last, "
            f"{smaller.depth}; cut it there first, or write L for the head."
        )
    chosen.check(smaller, resolved)
    if strategy is None:
        _check_room(smaller, chosen, settings)
    started = time.perf_counter()
    parts, begun = _parts(kind, smaller, data, settings), None
    if patch is not None:
        # When the texts are parted, so that none that is scored has a part in the patch, also of the same corpus; and
        # before the objective is made, since a patch may change how the states of the cut model become embeddings.
        beside = None if other is None else open_task(other)
        begun = _patch_first(uncut, smaller, done, open_task(patch), beside, data, parts[1])
    objective, learned, held = make_objective(kind, smaller, data, parts, settings, taught)
    log.info(
        "%d %s to learn from and %d held out were read in %.1f s.",
        *(len(objective.learned.items), objective.rows_are, len(objective.scored.items), time.perf_counter() - started),
    )
    training_data = TrainingData(smaller, data, learned, held)
    return HealingPlan(HealingJob(training_data, resolved, chosen, settings, seed, objective, uncut, begun), done)


def _plan_patch(
    model: Any, plan: Any, task: Any, other: Any, metric: str | None, seed: int, refused: dict[str, Any]
) -> HealingPlan:
    """Return the plan of a healing that only solves; `refused` has what else was given, by name."""
    allowed = ("max_length", "train_limit", "validation_limit")
    for name, value in refused.items():
        if value not in (None, False) and name not in allowed:
            raise InputError(
                f"{name} (--{name.replace('_', '-')}) is for a healing that trains, and method='patch' trains nothing; "
                "leave it out."
            )
    uncut, smaller, done = _models(model, plan)
    _check_patchable(uncut, smaller, done)
    assert uncut is not None
    assert done is not None
    data = open_task(task).with_metric(metric)
    without_labels = HEADS[smaller.head].classifier and not data.labelled
    kind, data = select_objective(smaller, data, taught=True)
    taught = _distillation(smaller, uncut, kind, None, without_labels, None, DISTANCES[0], None)
    options = {name: refused[name] for name in allowed if refused.get(name) is not None}
    length = int(options.get("max_length") or WINDOW)
    if kind.by_token and data.kind == "text" and "train_limit" not in options:
        options["train_limit"] = math.ceil(TOKENS / min(length, smaller.positions or length))
    settings = _settings(smaller, kind, PatchMethod(), None, options)
    parts = _parts(kind, smaller, data, settings)
    objective, _, held = make_objective(kind, smaller, data, parts, settings, taught)
    texts = deal(
        uncut,
        data,
        parts[0],
        held=held,
        other=None if other is None else open_task(other),
        limit=refused.get("train_limit"),
        max_length=settings.max_length,
        like=data,
    )
    settings = settings.model_copy(update={"max_steps": None})  # which only told how many texts to read
    strategy = Strategy.parse("full").resolve(smaller.depth)
    training_data = TrainingData(smaller, data, texts.learned, held)
    return HealingPlan(
        PatchJob(training_data, strategy, PatchMethod(), settings, seed, objective, uncut, plan=done, texts=texts), done
    )


def _check_patchable(uncut: Model | None, smaller: Model, plan: LayerPlan | None) -> None:
    """Raise InputError where it is not known which blocks of which model went."""
    if uncut is None or plan is None:
        raise InputError(
            f"A patch of {smaller.name} is solved for what the uncut model gives; name that model, and the blocks to "
            "leave out as a plan (--without 13-19), not a model that was cut before."
        )


def _patch_first(
    uncut: Model | None,
    smaller: Model,
    plan: LayerPlan | None,
    texts: Task,
    other: Task | None,
    like: Task,
    held: Examples,
) -> PatchedStart:
    """Fold a patch into the cut model, from which the training begins; texts that are scored have no part in it."""
    assert uncut is not None
    assert plan is not None
    plain = load(cut_network(uncut, plan, share=True))
    plain.name = smaller.name
    found = apply_patch(uncut, plan, smaller.network, deal(uncut, texts, scored=held, other=other, like=like))
    if found.applied:
        log.info("%s", found)
    return PatchedStart(plain, found)


def _check_room(model: Model, method: Method, settings: Hyperparameters) -> None:
    """Raise InputError, before anything is trained, where a GPU has clearly too little memory for every block."""
    shape, tokens = Footprint.of(model), settings.batch * settings.max_length

    def takes(checkpointing: bool) -> int:
        if method.adds_float32:
            return shape.lora(tokens, method.size or _RANK, checkpointing)
        return shape.finetune(tokens, checkpointing)

    less = (
        "" if settings.checkpointing else f"checkpointing=True (--checkpointing) takes about {takes(True) / 1e9:.0f}, "
    )
    way_out = f"{less}a smaller batch (with accumulate, the same steps) or max_length takes less"
    check_training(model, takes(settings.checkpointing), way_out)


def _method(method: str | Method, size: int | None) -> Method:
    """Return the method, with LoRA on every projection; raise InputError where what it makes cannot be merged."""
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


def _models(model: Any, plan: Any, method: Method | None = None) -> tuple[Model | None, Model, LayerPlan | None]:
    """Return the uncut model where it is given, the cut one, and the plan where there is one.

    What `method` trains opens in float32 if it trains the weights themselves; what is open in 16 bits is refused then,
    before anything is cut, and so is a head that is trained beside LoRA.
    """
    itself = method is not None and not method.adds_float32
    dtype = "float32" if itself else AUTO
    if (isinstance(plan, str) and plan.startswith(WORDS_OF_PLANS)) or plan is None or isinstance(plan, LayerPlan):
        whole = trained = load_whole(model, "healing", dtype=dtype)
    else:
        whole, trained = load(model), load_whole(plan, "healing", dtype=dtype)
    refuse_adapters(whole)
    refuse_adapters(trained)
    if itself or (method is not None and head_names(trained)):
        trained.require_precision("healing")
    if plan is None:
        return None, whole, None
    if isinstance(plan, str) and plan.startswith(WORDS_OF_PLANS):
        plan = LayerPlan.parse(plan, whole.depth, whole.name)
    if isinstance(plan, LayerPlan):
        if not plan.removed(whole.depth):
            raise InputError(f"The plan removes no block of {whole.name}; there is nothing to heal.")
        smaller = load(cut_network(whole, plan, share=True))  # what is trained or patched of it gets its own memory
        smaller.name = f"{whole.name} without blocks {spans(plan.removed(whole.depth))}"
        return whole, smaller, plan
    return whole, trained, None


def _distillation(
    model: Model,
    uncut: Model | None,
    objective: type[Objective],
    teacher: Any,
    distill: bool,
    mix: float | None,
    distance: str,
    keep: int | None,
) -> Distillation:
    """Return the teacher and its share of the loss, after checking that it can teach."""
    choose("distance", distance, DISTANCES)
    needed = objective.needs_teacher
    if distance != DISTANCES[0] and not needed:
        raise InputError(
            f"distance is {distance}, which is between embeddings, and {model.name} gives none; leave it out."
        )
    if teacher is None and not distill and not needed:
        for name, value in (("mix", mix), ("keep_teacher", keep)):
            if value is not None:
                raise InputError(f"{name} is {value}, and nothing teaches: give distill=True (--distill) or a teacher.")
        return Distillation()
    if teacher is None and uncut is None:
        steps = getattr(model.network, ORIGIN, [])
        origin = f" It was cut from {steps[0]['from']}." if steps else ""
        raise InputError(
            f"{model.name} was given as it is, so the uncut model to learn from is not known; give it as teacher= "
            f"(--teacher), or give that model and what to cut.{origin}"
        )
    chosen = load(teacher) if teacher is not None else uncut
    assert chosen is not None
    check_teacher(model, chosen)
    if mix is not None and not 0 < mix <= 1:
        raise InputError(f"mix is {mix}; it is the teacher's share of the loss, above 0 and at most 1.")
    if needed and mix is not None:
        raise InputError("mix is for texts or labels beside the teacher, and embeddings have the teacher alone.")
    if keep is not None and not objective.by_token:
        raise InputError(
            "keep_teacher keeps the likeliest of many outputs at every token, and this head has one answer per text; "
            "leave it out."
        )
    return Distillation(chosen, 0.5 if mix is None else mix, keep, distance)


def _settings(
    model: Model, objective: type[Objective], method: Method, steps: int | None, options: dict[str, Any]
) -> Hyperparameters:
    """Return the hyperparameters: those that were asked for, else those that suit the objective and the method."""
    given = {name: value for name, value in options.items() if value is not None}
    if steps is not None:
        if "max_steps" in given:
            raise InputError("Both steps and max_steps were given; they say the same thing twice, so give one of them.")
        given["max_steps"] = steps
    tokens = objective.by_token
    usual: dict[str, Any] = dict(_TOKENS if tokens else _TEXTS)
    rates = _RATES["tokens" if tokens else "texts"]
    usual["learning_rate"] = rates.get(method.name, rates["finetune"])
    usual["bf16"] = model.device.type == "cuda" and torch.cuda.is_bf16_supported()
    if model.positions is not None:
        usual["max_length"] = min(usual["max_length"], model.positions)
    if objective is EmbeddingObjective and model.embedding is not None and model.embedding.max_length:
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
