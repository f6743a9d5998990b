"""Rules: where the plans come from that `ls.advise` evaluates. Each rule is a file of `cutting/rules/`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from layerscope.cutting.plan import LayerPlan
from layerscope.cutting.search import Search
from layerscope.errors import InputError, choose
from layerscope.registry import Registry


class Rule(ABC):
    """A way to propose plans. It may look at the texts that choose, through its `Search`, and at no others."""

    name: ClassVar[str]
    source: ClassVar[str] = ""
    looks: ClassVar[bool] = False  # whether the plans depend on texts
    deepest: ClassVar[int | None] = None  # blocks of the deepest model that it is tried on without being asked for

    @abstractmethod
    def plans(self, search: Search) -> list[LayerPlan]:
        """The plans that it proposes, each once."""

    # What it takes, estimated beforehand.

    def stand_ins(self, search: Search) -> list[LayerPlan]:
        """Plans that take about as long as those that it will propose; the same ones, where it looks at nothing."""
        if not self.looks:
            return self.plans(search)
        return [_middle(search.depth, size) for size in search.sizes]

    def evaluations(self, search: Search) -> int:
        """How many plans it evaluates on the texts that choose, at most."""
        return 0

    def block_runs(self, search: Search) -> int:
        """How many blocks it runs for each text that chooses, at most."""
        return search.depth if self.looks else 0


RULES: Registry[Rule] = Registry("layerscope.cutting.rules", "rule")


def chosen_rules(asked: str | Sequence[str] | None, depth: int, max_span: int | None = None) -> list[Rule]:
    """The rules of some names, or those that fit a model of this depth."""
    if asked is None:
        return [rule() for rule in RULES.values() if _fits(rule, depth, max_span)]
    names = [name.strip() for name in asked.split(",")] if isinstance(asked, str) else list(asked)
    if not names:
        raise InputError(f"rules is empty; name some of {', '.join(RULES)}, or leave it out.")
    return [RULES[choose("rule", name, RULES)]() for name in dict.fromkeys(names)]


def _fits(rule: type[Rule], depth: int, max_span: int | None) -> bool:
    return rule.deepest is None or depth <= rule.deepest or max_span is not None


def _middle(depth: int, size: int) -> LayerPlan:
    first = (depth - size) // 2 + 1
    return LayerPlan.skipped(depth, first, first + size - 1)
