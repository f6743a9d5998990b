"""What evaluating the plans of some rules takes, estimated before it is done."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from layerscope.cutting.costs import Costs
from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.rule import Rule
from layerscope.cutting.search import Search
from layerscope.cutting.trial import Trial

_READ = 64  # texts that are tokenised to judge the length of all
_LEAST = 1.0  # seconds that the latency of a size takes, at least


@dataclass(frozen=True)
class Effort:
    """How many plans, how many runs of a block, and about how many seconds on this device."""

    rules: tuple[str, ...]
    plans: int
    searched: int  # plans that rules evaluate on the texts that choose, besides
    block_runs: float  # per text, the whole model's own included
    depth: int
    rows: str  # how many, and of what
    seconds: float

    def __str__(self) -> str:
        more = f", and up to {self.searched} more while searching" if self.searched else ""
        times = self.block_runs / self.depth
        return (
            f"The rules {', '.join(self.rules)} propose about {self.plans} plans{more}. Evaluating them takes "
            f"{self.block_runs:,.0f} runs of a block for each of {self.rows}, {times:.0f} times what the whole model "
            f"takes, and about {_duration(self.seconds)} here. Fewer rules, sizes or texts (--rules, --remove, "
            "--limit) take less."
        )


def effort(search: Search, rules: Sequence[Rule], costs: Costs, *, timed: bool) -> Effort:
    """What these rules will take; what was done before, and is in the store, takes nothing."""
    sitting, share = search.sitting, len(search.rows) / len(search.sitting.examples)
    whole = LayerPlan(range(1, search.depth + 1))
    plans = list(dict.fromkeys([whole, *(plan for rule in rules for plan in rule.stand_ins(search))]))
    runs = Trial(sitting.subject, plans).block_runs + share * sum(rule.block_runs(search) for rule in rules)
    searched = sum(rule.evaluations(search) for rule in rules)
    around, blocks = costs.around, costs.macs(whole) - costs.around
    batch = 1 if sitting.model.device.type == "cpu" else 32
    macs = runs * blocks / search.depth + (len(plans) + share * searched) * around
    taken = costs.latency(whole, batch)
    seconds = macs * taken / (batch * costs.timed_macs(whole)) * sitting.tokens(_READ) / costs.tokens
    if timed:
        seconds += len(search.sizes) * (_LEAST + taken * 32 / batch)
    names = tuple(rule.name for rule in rules)
    rows = f"{len(sitting.examples):,} {sitting.rows_are}"
    return Effort(names, len(plans), searched, runs, search.depth, rows, seconds)


def _duration(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{seconds / 60:.0f} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"
