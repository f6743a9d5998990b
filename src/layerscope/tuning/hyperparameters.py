"""Hyperparameters of a training, and the presets of the papers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from layerscope.errors import InputError, choose, near, unknown
from layerscope.tuning.strategy import Strategy

if TYPE_CHECKING:
    from layerscope.tuning.method import Method


class Hyperparameters(BaseModel):
    """Hyperparameters of one training. Several learning rates are a sweep: each is tried, and the best kept."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    learning_rate: float | tuple[float, ...] = 2e-5
    epochs: float = Field(3.0, gt=0, allow_inf_nan=False)
    max_steps: int | None = Field(None, ge=1)  # instead of epochs
    batch: int = Field(16, ge=1)
    accumulate: int = Field(1, ge=1)
    warmup: float = Field(0.06, ge=0, allow_inf_nan=False)  # a share of the steps, or (1 and above) their number
    schedule: Literal["linear", "constant", "cosine", "constant_with_warmup"] = "linear"
    weight_decay: float = Field(0.0, ge=0, allow_inf_nan=False)
    adam_epsilon: float = Field(1e-8, gt=0, allow_inf_nan=False)
    max_length: int = Field(128, ge=3)
    bf16: bool = False
    evaluate_every: int | None = Field(None, ge=1)  # steps between two looks at what is held out; else an epoch
    checkpointing: bool = False  # run blocks again in the backward pass instead of keeping what they made
    report_to: tuple[str, ...] = ()  # the Trainer's trackers
    patience: int | None = Field(None, ge=1)  # looks without a better score after which to stop
    cache: bool = True  # keep the output of frozen blocks instead of running them in every epoch
    cache_dtype: Literal["float32", "bfloat16"] = "float32"
    cache_limit: float = Field(20.0, ge=0)  # GiB
    train_limit: int | None = Field(None, ge=1)
    validation_limit: int | None = Field(None, ge=1)

    def spec(self) -> dict[str, Any]:
        """Return what decides a training's result, for keys of the store.

        How much may be cached changes how long a training takes and not what comes out, unless what is cached is
        rounded; the rows that are learned from are in the spec of the examples.
        """
        neutral = {"train_limit", "validation_limit", "checkpointing", "report_to"}
        neutral |= {"cache_limit"} if self.cache_dtype == "float32" else set()
        neutral |= {"evaluate_every"} if self.evaluate_every is None else set()
        return self.model_dump(mode="json", exclude=neutral)

    @property
    def rates(self) -> tuple[float, ...]:
        return self.learning_rate if isinstance(self.learning_rate, tuple) else (self.learning_rate,)


PRESETS: dict[str, dict[str, Any]] = {
    # Phang et al. 2021: up to 10,000 steps, Adam, batch 4, 1e-5, 1,000 warm-up steps.
    "phang2021": {"learning_rate": 1e-5, "batch": 4, "max_steps": 10_000, "warmup": 1000},
    # Wu et al. 2020, appendix D: batch 8, 5e-5, Adam epsilon 1e-8, 3 epochs.
    "wu2020": {"learning_rate": 5e-5, "batch": 8, "epochs": 3, "adam_epsilon": 1e-8, "warmup": 0},
    # Xie et al. 2022: AdamW, linear decay, 6 % warm-up, no weight decay, batch 8, 20 epochs, best epoch on validation.
    # Its learning rates depend on the strategy and the method: `xie_rates`.
    "xie2022": {"batch": 8, "epochs": 20, "warmup": 0.06, "weight_decay": 0.0},
}

_XIE: dict[str, dict[str, tuple[float, ...]]] = {  # tables 4 and 5
    "finetune": {
        "full": (1e-6, 5e-6, 8e-6, 1e-5, 2e-5),
        "few": (8e-6, 1e-5, 2e-5, 3e-5, 5e-5),
        "from the bottom": (5e-6, 1e-5, 5e-5, 1e-4),
        "many at the top": (1e-6, 3e-6, 1e-5, 3e-5),
    },
    "adapter": {
        "full": (1e-5, 3e-5, 1e-4),
        "few": (3e-5, 1e-4, 3e-4),
        "from the bottom": (1e-5, 3e-5, 1e-4),
        "many at the top": (1e-5, 3e-5, 1e-4),
    },
}


_FEW = 3  # the most blocks of the baselines (L, L, L), (L-1, L, L) and (L-2, L, L)
_LARGE = ("mnli", "qqp")  # the tasks on which full fine-tuning takes half as many epochs
_SHORTER = ("finetune",)  # tables of rates whose whole-model rows are trained for half as long on those


def check_trackers(names: Any) -> tuple[str, ...]:
    """Return the trackers that are named; raise InputError where the Trainer or the environment lacks one."""
    if not names:
        return ()
    from transformers.integrations import get_available_reporting_integrations
    from transformers.integrations.integration_utils import INTEGRATION_TO_CALLBACK

    given = names.split(",") if isinstance(names, str) else names
    asked = tuple(str(name).strip() for name in given if str(name).strip())
    for name in asked:
        choose("tracker", name, sorted(INTEGRATION_TO_CALLBACK))
        if name not in get_available_reporting_integrations():
            raise InputError(f"The tracker {name} is not installed; install it with: pip install {name}.")
    return asked


def xie_rates(strategy: Strategy, depth: int, rates: str) -> tuple[float, ...]:
    """Return the learning rates that Xie et al. tried for a strategy in numbers, of a method's set (`paper_rates`).

    Numbers alone decide, so that one strategy has one set however it was written and whatever l* is. The paper chose
    the sets by how much is trained (appendix B.4), and its (bottom, L, L) has at most three blocks, where its
    (l*+1, L, L) has six or more in RoBERTa: so more than three blocks at the top get the latter's set. B.4 also says
    that a strategy around l* uses the same learning rate as (bottom, L, L); we read it as the same set, of which each
    strategy takes its own best.
    """
    kind = "few"
    if strategy.bottom == 1:
        kind = "full" if strategy.is_whole(depth) else "from the bottom"
    elif strategy.top == strategy.head == depth and len(strategy.blocks) > _FEW:
        kind = "many at the top"
    return _XIE[rates][kind]


def xie_epochs(strategy: Strategy, depth: int, method: Method, task: str) -> int:
    """Return how many epochs Xie et al. train: 10 where all of the model is fine-tuned on MNLI or QQP, else 20."""
    shorter = method.paper_rates in _SHORTER and task.split("@", 1)[0] in _LARGE
    return 10 if strategy.is_whole(depth) and shorter else 20


def hyperparameters(
    preset: str | None,
    strategy: Strategy,
    method: Method,
    task: str = "",
    depth: int = 0,
    **changes: Any,
) -> Hyperparameters:
    """Return a preset's hyperparameters, or the defaults, with changes; a change to None is ignored.

    `strategy` is in numbers, for a model of `depth` blocks.
    """
    if preset is not None and preset not in PRESETS:
        raise unknown("preset", preset, PRESETS)
    values = dict(PRESETS.get(preset or "", {}))
    if preset == "xie2022":
        values["learning_rate"] = xie_rates(strategy, depth, method.paper_rates)
        values["epochs"] = xie_epochs(strategy, depth, method, task)
    values |= {k: v for k, v in changes.items() if v is not None}
    if isinstance(values.get("learning_rate"), list):
        values["learning_rate"] = tuple(values["learning_rate"])
    values["report_to"] = check_trackers(values.get("report_to"))
    if changes.get("epochs") is not None and changes.get("max_steps") is not None:
        raise InputError("Both epochs and max_steps were given; they say the same thing twice, so give one of them.")
    for name in values:
        if name not in Hyperparameters.model_fields:
            raise InputError(
                f"There is no training option {name!r}; there are {', '.join(Hyperparameters.model_fields)}."
                f"{near(name, Hyperparameters.model_fields)}"
            )
    if "epochs" in changes and changes["epochs"] is not None and "max_steps" not in changes:
        values.pop("max_steps", None)
    try:
        chosen = Hyperparameters(**values)
    except ValidationError as error:
        first = error.errors()[0]
        raise InputError(f"The training option {first['loc'][0]} is {first['input']!r}: {first['msg']}.") from error
    if not chosen.rates or (wrong := [rate for rate in chosen.rates if not 0 < rate < math.inf]):
        found = f"A learning rate is {wrong[0]:g}" if chosen.rates else "There is no learning rate"
        raise InputError(f"{found}; it must be above 0, such as 2e-5.")
    return chosen
