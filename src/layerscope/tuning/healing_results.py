"""A healing as a result: what a model scored whole, cut and healed, and what that took."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.cutting.plan import LayerPlan
from layerscope.data import metrics
from layerscope.drawing.figures.bars import BarsFigure
from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.drawing.words import caveat, numbers
from layerscope.models.lineage import RECORD
from layerscope.store import atomic_folder
from layerscope.tuning.cards import RESULT
from layerscope.tuning.gains import UNKNOWN, Gain
from layerscope.tuning.healing_job import HealingJob
from layerscope.tuning.method import CHECKPOINT
from layerscope.tuning.training import Training

if TYPE_CHECKING:
    from layerscope.drawing.figure import Figure

RECORDED = "healing.json"  # what was measured, beside a checkpoint that was copied
_NAMES = {"uncut": "uncut", "cut": "cut, nothing trained", "healed": "cut and healed"}


def undecided(metric: str, name: str, gain: Gain, n: int, are: str) -> str:
    """That a difference is within noise, and how large that is."""
    word = are.removesuffix("s") if n == 1 else are
    if math.isinf(gain.low) or math.isinf(gain.high):
        return f"{n:,} held-out {word} cannot tell whether it is better than the {name} model: hold out more texts."
    return (
        f"The difference from the {name} model is within noise: on {n:,} held-out {word} it gains between "
        f"{gain.low:+.4g} and {gain.high:+.4g} {metric} (95% interval), so they do not tell which of the two is "
        "better. Hold out more (validation_limit=, --validation-limit)."
    )


class Healing(Training):
    """One healing: a `Training` whose `score` is the healed model's on texts that were held out.

    Attributes:
        job: What was asked for.
        path: The folder in the store with `training.json` and `checkpoint`, the healed model.
        plan: What was cut, where a plan was given.
        scores: The metric of the uncut model (where it is known), of the cut one, and of the healed one.
        gains: How much better the healed model scores than the uncut and the cut one on the same rows, with a 95%
            interval of the difference: where that holds 0, either may be the better one.

    Example:
        >>> import layerscope as ls
        >>> few = {"steps": 2, "batch": 4, "max_length": 16, "train_limit": 16, "validation_limit": 8}
        >>> healing = ls.heal("garden:gpt2-s0", ls.LayerPlan([1, 2, 4]), ls.task("pydocs", kind="text"), **few)
        >>> type(healing.model).__name__, healing.job.method.name
        ('GPT2LMHeadModel', 'lora')
    """

    name = "healing"
    job: HealingJob

    def __init__(self, job: HealingJob, path: Path, plan: LayerPlan | None = None) -> None:
        super().__init__(job, path)
        self.plan = plan

    @property
    def scores(self) -> dict[str, float]:
        return {name: float(value) for name, value in self.outcome["scores"].items()}

    @property
    def gains(self) -> dict[str, Gain]:
        return {name: Gain.from_spec(value) for name, value in self.outcome["gains"].items()}

    @property
    def tokens_per_second(self) -> float:
        """Of training, the looks at held-out texts included."""
        return float(self.outcome["tokens"]) / self.seconds if self.seconds else math.nan

    @property
    def row(self) -> dict[str, Any]:
        """The healing in the words of its table."""
        outcome, h = self.outcome, self.job.hyperparameters
        return {
            "model": outcome["model"],
            "method": self.job.method.name,
            "strategy": str(self.job.strategy),
            "teacher": outcome["teacher"] or "",
            "mix": math.nan if outcome["mix"] is None else float(outcome["mix"]),
            "metric": self.metric,
            **{name: self.scores.get(name, math.nan) for name in _NAMES},
            **self._bounds,
            "steps": int(outcome["steps"]),
            "learning_rate": h.rates[0],
            "seed": self.job.seed,
            "tokens": int(outcome["tokens"]),
            "trainable": self.trainable,
            "parameters": self.parameters,
            "seconds": self.seconds,
        }

    @property
    def _bounds(self) -> dict[str, float]:
        """What the healed model gained over the others, at least and at most."""
        ends = {name: self.gains.get(name, UNKNOWN) for name in ("uncut", "cut")}
        return {f"over_{name}_{end}": getattr(gain, end) for name, gain in ends.items() for end in ("low", "high")}

    def figures(self) -> list[Figure]:
        """Bars before and after, the held-out loss over the training, and the table."""
        n, are = int(self.outcome["rows"]["scored"]), str(self.outcome["rows"]["are"])
        better = "Higher" if metrics.higher_is_better(self.metric) else "Lower"
        named = [(_NAMES[name], value) for name, value in self.scores.items()]
        said = f"The healed one is the best of {len(self.epochs)} on these {are}, so a little too good."
        said = " ".join([said, *self._doubts()])
        bars = BarsFigure(
            title="Before and after healing",
            shows=f"{self.metric} on {n:,} held-out {are} of the uncut model, of the cut one and of the healed one.",
            reading=f"{better} is better.",
            caveat=caveat(said, n),
            names=tuple(name for name, _ in named),
            values=tuple(value for _, value in named),
            y_name=self.metric,
            n=n,
        )
        figures: list[Figure] = [bars]
        if len(self.epochs) > 1:
            x, y = (tuple(float(entry[name]) for entry in self.epochs) for name in ("epoch", "loss"))
            figures.append(
                CurveFigure(
                    title="Loss on held-out texts during healing",
                    shows=f"The mean loss on {n:,} held-out {are} at every look.",
                    reading="The look with the least loss is the one that is kept.",
                    caveat=caveat("", n),
                    series=(Series("held-out loss", x, y),),
                    x_name="epoch",
                    y_name="loss",
                    n=n,
                )
            )
        return [*figures, numbers("Healing", "What was trained and what it scored.", [self.row])]

    def findings(self) -> list[str]:
        scores, outcome = self.scores, self.outcome
        before = f", where the uncut model has {scores['uncut']:.4f}" if "uncut" in scores else ""
        said = [
            f"{self.metric} is {scores['healed']:.4f} after healing and {scores['cut']:.4f} before{before}, on "
            f"{outcome['rows']['scored']:,} held-out {outcome['rows']['are']}; {self.trainable:,} of "
            f"{self.parameters:,} parameters were trained on {outcome['tokens']:,} tokens in {self.seconds:.0f} s."
        ]
        if not metrics.upward(self.metric, scores["healed"]) > metrics.upward(self.metric, scores["cut"]):
            said.append("It did not get better: train longer, on more text, or with another learning rate.")
        said += self._doubts()
        if kept := outcome.get("kept"):
            said.append(
                f"The {kept['k']} likeliest outputs of the teacher that were kept leave out {kept['left_out']:.2%} of "
                f"its probability; before the training they show {kept['kept_divergence']:.4f} nats of a divergence of "
                f"{kept['divergence']:.4f}."
            )
        return said

    def _doubts(self) -> list[str]:
        """What the held-out rows do not tell, or tell only of themselves."""
        rows = self.outcome["rows"]
        said = []
        for name, gain in self.gains.items():
            if not gain.sure:
                said.append(undecided(self.metric, name, gain, int(rows["scored"]), str(rows["are"])))
            elif name == "uncut" and gain.value > 0:
                said.append(
                    f"It is better than the uncut model on these {rows['are']} (by {gain.low:.4g} to {gain.high:.4g} "
                    f"{self.metric}, 95% interval), which did not learn from texts like them: that does not show "
                    "that the blocks were of no use."
                )
        return said

    def copy_to(self, folder: str | Path) -> Path:
        """Put the healed checkpoint into a folder of yours, as plain transformers opens it.

        Args:
            folder: The folder to write. An earlier checkpoint of layerscope's is replaced, anything else left alone.

        Returns:
            The folder, with the checkpoint and `healing.json`.
        """
        target = Path(folder)
        with atomic_folder(target, RECORD) as staging:
            self.write(staging)
        return target

    def write(self, folder: Path) -> None:
        shutil.copytree(self.path / CHECKPOINT, folder, dirs_exist_ok=True)
        shutil.copy(self.path / RESULT, folder / RECORDED)

    def __repr__(self) -> str:
        parts = ", ".join(f"{name} {value:.4f}" for name, value in self.scores.items())
        return f"Healing({self.outcome['model']} by {self.job.method.name}: {self.metric} {parts})"
