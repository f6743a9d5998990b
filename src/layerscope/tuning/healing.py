"""`Healing`, the result of `ls.heal`: what a model scored whole, cut and healed, and what that took."""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope import metrics
from layerscope.cutting.plan import LayerPlan
from layerscope.drawing.captions import caveat, numbers
from layerscope.drawing.figures.bars import BarsFigure
from layerscope.drawing.figures.curve import CurveFigure, Series
from layerscope.metrics import in_nats, recovered
from layerscope.models.lineage import RECORD
from layerscope.models.sources import short_names
from layerscope.results import Finding, NextStep
from layerscope.results.finding import ANSWER, DETAIL, NO_INTERVAL, SUPPORT, interval, number
from layerscope.store import atomic_folder
from layerscope.tuning.healing_job import PATCHED, HealingJob
from layerscope.tuning.method import CHECKPOINT
from layerscope.tuning.objectives.base import UNKNOWN, Gain
from layerscope.tuning.training import Training
from layerscope.tuning.training_job import RESULT

if TYPE_CHECKING:
    from layerscope.drawing.figure import Figure

RECORDED = "healing.json"  # what was measured, beside a checkpoint that was copied
_NAMES = {
    "uncut": "uncut",
    "cut": "cut, nothing trained",
    "patched": "patched, nothing trained",
    "healed": "cut and healed",
}


def undecided(metric: str, name: str, gain: Gain, n: int, are: str) -> str:
    """Return a sentence that says that a difference is within noise, and how large that is."""
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
        scores: The metric of the uncut model (where it is known), of the cut one, of the patched one where the training
            began with a patch, and of the healed one.
        gains: How much better the healed model scores than each of the others on the same rows, with a 95% interval of
            the difference: where that holds 0, either may be the better one.

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
            "model": short_names([outcome["model"]])[0],
            "method": self.job.method.name,
            "strategy": "" if self.patched else str(self.job.strategy),
            "teacher": outcome["teacher"] or "",
            "mix": math.nan if outcome["mix"] is None else float(outcome["mix"]),
            "metric": self.metric,
            **{name: self.scores.get(name, math.nan) for name in _NAMES},
            **self._bounds,
            "steps": int(outcome["steps"]),
            "learning_rate": math.nan if self.patched else h.rates[0],
            "seed": self.job.seed,
            "tokens": int(outcome["tokens"]),
            "trainable": self.trainable,
            "parameters": self.parameters,
            "seconds": self.seconds,
        }

    @property
    def _bounds(self) -> dict[str, float]:
        """The ends of the intervals of what the healed model gained over the others."""
        ends = {name: self.gains.get(name, UNKNOWN) for name in ("uncut", "cut")}
        return {f"over_{name}_{end}": getattr(gain, end) for name, gain in ends.items() for end in ("low", "high")}

    def figures(self) -> list[Figure]:
        """Bars before and after, the held-out loss over the training, and the table."""
        n, are = int(self.outcome["rows"]["scored"]), str(self.outcome["rows"]["are"])
        better = "Higher" if metrics.higher_is_better(self.metric) else "Lower"
        named = [(_NAMES[name], value) for name, value in self.scores.items()]
        note = f"The healed one is the best of {len(self.epochs)} on these {are}, so a little too good."
        if self.patched:
            note = f"Nothing was trained, and these {are} had no part in solving or choosing the patch."
        note = " ".join([note, *self._doubts()])
        bars = BarsFigure(
            title="Before and after healing",
            shows=f"{self.metric} on {n:,} held-out {are} of the model {', '.join(name for name, _ in named)}.",
            reading=f"{better} is better.",
            caveat=caveat(note, n),
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

    def findings(self) -> list[Finding]:
        """What the model scores before and after, what the held-out rows do not tell, and what was brought back."""
        scores, outcome = self.scores, self.outcome
        before = f" and {scores['patched']:.4f} with the patch alone" if "patched" in scores else ""
        before += f", where the uncut model has {scores['uncut']:.4f}" if "uncut" in scores else ""
        text = (
            f"{self.metric} is {scores['healed']:.4f} after healing and {scores['cut']:.4f} before{before}, on "
            f"{outcome['rows']['scored']:,} held-out {outcome['rows']['are']}; the healed model has "
            f"{self.parameters:,} parameters, and {self.trainable:,} were {'solved' if self.patched else 'trained'} on "
            f"{outcome['tokens']:,} tokens in {self.seconds:.0f} s."
        )
        gain = self.gains.get("cut", UNKNOWN)
        findings = [Finding(text, "", None if math.isnan(gain.low) else gain.sure, ANSWER)]
        better = metrics.upward(self.metric, scores["healed"]) > metrics.upward(self.metric, scores["cut"])
        findings += [Finding(text, "", None, SUPPORT) for text in outcome.get("patch", {}).get("said", ())]
        if "patched" in scores and metrics.upward(self.metric, scores["healed"]) < metrics.upward(
            self.metric, scores["patched"]
        ):
            alone = self.gains.get("patched", UNKNOWN)
            text = (
                "The patch alone scores better than what was trained from it: take it as it is (method='patch', "
                "--method patch), or train with a lower learning rate."
            )
            findings.append(Finding(text, "", None if math.isnan(alone.low) else alone.sure, SUPPORT))
        if not better and not self.patched:
            text = "It did not get better: train longer, on more text, or with another learning rate."
            findings.append(Finding(text, "", None if math.isnan(gain.low) else gain.sure, SUPPORT))
        findings += [Finding(doubt, "", False, SUPPORT) for doubt in self._doubts()]
        if better:
            findings.append(self._brought_back(gain))
        if kept := outcome.get("kept"):
            text = (
                f"The {kept['k']} likeliest outputs of the teacher that were kept leave out {kept['left_out']:.2%} of "
                f"its probability; before the training they show {kept['kept_divergence']:.4f} nats of a divergence of "
                f"{kept['divergence']:.4f}."
            )
            findings.append(Finding(text, "", None, DETAIL))
        return findings

    @property
    def patched(self) -> bool:
        """Whether nothing was trained: the model was patched."""
        return self.job.kind == PATCHED

    def _brought_back(self, gain: Gain) -> Finding:
        """Return how much of what the cut lost is back, or, where that is not a share, the gain over the cut model."""
        names = ("uncut", "cut", "healed")
        uncut, cut, healed = (in_nats(self.metric, self.scores.get(name, math.nan)) for name in names)
        share = recovered(uncut, cut, healed)
        text = f"Healing brings back {share:.0%} of what the cut lost."
        if not 0 < share <= 1:
            text = f"Healing takes {self.metric} from {number(self.scores['cut'])} to {number(self.scores['healed'])}."
        evidence = f"{interval(gain.low, gain.high)} of what it gains over the cut model"
        if math.isinf(gain.low) or math.isinf(gain.high):
            evidence = "too few rows for an interval of what it gains over the cut model"
        elif math.isnan(gain.low):
            evidence = NO_INTERVAL
        seeds = "" if self.patched else "; one seed"
        return Finding(text, f"{evidence}{seeds}", None if math.isnan(gain.low) else gain.sure, SUPPORT)

    def next_step(self) -> NextStep:
        """The score of what was saved."""
        why = "Score what was saved on the texts that matter to you"
        return NextStep("evaluate", why=why, saved="")

    def _doubts(self) -> list[str]:
        """Return sentences on what the held-out rows leave open, or say only of themselves."""
        rows, over = self.outcome["rows"], self.outcome.get("intervals")
        doubts = [f"Intervals are {over}."] if over else []
        for name, gain in self.gains.items():
            if not gain.sure:
                doubts.append(undecided(self.metric, name, gain, int(rows["scored"]), str(rows["are"])))
            elif name == "uncut" and gain.value > 0:
                doubts.append(
                    f"It is better than the uncut model on these {rows['are']} (by {gain.low:.4g} to {gain.high:.4g} "
                    f"{self.metric}, 95% interval), which did not learn from texts like them: that does not show "
                    "that the blocks were of no use."
                )
        return doubts

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
        return f"Healing({self.row['model']} by {self.job.method.name}: {self.metric} {parts})"
