"""What a study is of: its parts, which of them make sense for a model and some texts, and what they read in the time.

How many texts a part reads follows from what a forward pass takes here, and from how many of them its calls make.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.resources import files
from typing import Any

import yaml

from layerscope.data import Task
from layerscope.drawing.captions import listed
from layerscope.errors import LayerscopeError, log
from layerscope.evaluation.evaluate import evaluate, make_evaluator, select_evaluator
from layerscope.models import Model
from layerscope.models.sources import folder_of
from layerscope.recipes.recipe import Experiment
from layerscope.similarity.influence import block_influence

LEAST_TEXTS, MOST_TEXTS = 40, 4000
LEAST_WINDOWS, ADVISED_WINDOWS = 10, 24  # of running text; advice deals its rows out to three parts
WINDOW = 512  # tokens of a window of running text: as many as healing learns from
_ENOUGH = 400  # texts from which on more plans are worth more than further texts
# What advice tries, the most first: its rules (None: the usual ones), the plans that a rule which searches may
# evaluate, and about how many forward passes that makes for every block of the model.
SEARCHES: tuple[tuple[tuple[str, ...] | None, int, float], ...] = (
    (None, 256, 7.0),
    (("angular", "greedy", "last", "random"), 64, 3.5),
    (("angular", "last", "random"), 0, 1.2),
)
_LONGEST = 128  # tokens of a text that is read for its states
_PILOT = 0.7  # seconds that the pilot runs at least
_LOGITS = 1.2  # times the product with a vocabulary: what turning it into losses takes too
_FIXED, _TIMED = 1.5, 10.0  # seconds of opening, drawing and writing of a call; of measuring latencies

# About how many forward passes of one model over `limit` texts a call makes: (settings, blocks) -> passes.
_PASSES: dict[str, Callable[[Mapping[str, Any], int], float]] = {
    "describe": lambda s, depth: 0,
    "evaluate": lambda s, depth: 1,
    "tuning_changes": lambda s, depth: 6 + 2 * s["attended"] / max(s["limit"], 1),  # states, and both splits for probes
    "compare": lambda s, depth: 1 + (s["other"] is not None),
    "layer_blocks": lambda s, depth: 0,
    # Where it is patched, the texts that patches are solved, chosen and tried on are read as well, cut by cut.
    # Every layer of a curve, and every span of a map, has a head of its own to run.
    "truncation_curve": lambda s, depth: (
        2 + depth * s["head"] + ("mode" in s) * (2 + depth / 2 * s["learned"] / max(s["limit"], 1))
    ),
    "skip_map": lambda s, depth: depth / 2 * (1 + s["head"]),
    "advise": lambda s, depth: SEARCHES[s["search"]][2] * depth,
    "recommend": lambda s, depth: 3,
    "alignment_study": lambda s, depth: 4,
    "injection_study": lambda s, depth: 5,
}


class StudyPart(Experiment):
    """A part of a study: its calls, what must be there for them, and its share of the time."""

    where: str = ""
    kind: str  # the command that does the same
    needs: tuple[str, ...] = ()
    share: float

    @property
    def advises(self) -> bool:
        """Whether it searches for blocks that can go."""
        return any(call.call == "advise" for call in self.calls)


@cache
def parts() -> tuple[StudyPart, ...]:
    """Return the parts of a study, in the order of its report."""
    text = files("layerscope.recipes").joinpath("study.yaml").read_text(encoding="utf-8")
    return tuple(StudyPart(name=name, **fields) for name, fields in yaml.safe_load(text).items())


@dataclass(frozen=True)
class Subject:
    """What is studied: the model on its texts, its base, other models, and what was asked for."""

    model: Model
    task: Task
    base: Model | None
    others: Sequence[Model]
    tolerance: float | str
    split: str | None
    limit: int | None
    max_length: int | None
    seed: int

    @cached_property
    def unscored(self) -> str:
        """Why the model's head cannot be scored on the texts; empty where it can."""
        try:
            make_evaluator(self.model, self.task, split=self.split, limit=2, max_length=self.max_length)
        except LayerscopeError as error:
            return str(error)
        return ""

    @property
    def scored(self) -> bool:
        return not self.unscored

    @cached_property
    def running(self) -> bool:
        """Whether the texts are scored as running text."""
        return self.scored and select_evaluator(self.model, self.task)[1].kind == "text"

    @cached_property
    def twin(self) -> str | None:
        """The untrained twin, where a score of running text needs one to be set beside."""
        return f"random:{self.model.name}" if self.running and folder_of(self.model) is not None else None

    @cached_property
    def whole(self) -> int:
        """How many texts the split has that is scored."""
        return len(self.task.split(self.split))

    @property
    def available(self) -> int:
        """How many of them are read at most."""
        return min(self.whole, MOST_TEXTS, self.limit or MOST_TEXTS)

    @property
    def window(self) -> int | None:
        """The longest text in tokens that is scored, or the length of a window; None for what is usual."""
        if self.max_length is not None or not self.running:
            return self.max_length
        return min(WINDOW, self.model.positions or WINDOW)

    @cached_property
    def windows_per_text(self) -> float:
        """How many windows of running text a text makes."""
        count = min(LEAST_TEXTS, self.available)
        return max(self._windows(count), 1) / count

    @cached_property
    def tokens_per_text(self) -> float:
        """How many tokens of a text are scored, on average."""
        count = min(LEAST_TEXTS, self.available)
        evaluator = make_evaluator(self.model, self.task, split=self.split, limit=count, max_length=self.window)
        return evaluator.tokens(len(evaluator.examples)) / count

    @cached_property
    def head_share(self) -> float:
        """The share of a forward pass that is the head's: next to nothing, unless it scores a whole vocabulary."""
        if not self.running:
            return 0.0
        network = self.model.network
        head = _LOGITS * self.model.vocabulary * self.model.width
        embeddings = network.get_input_embeddings().weight
        body = sum(each.numel() for each in network.base_model.parameters()) - embeddings.numel()
        return float(head / (head + max(body, 1)))

    def _windows(self, texts: int) -> int:
        evaluator = make_evaluator(self.model, self.task, split=self.split, limit=texts, max_length=self.window)
        return len(evaluator.examples)

    def least(self, part: StudyPart) -> int:
        """Return how many texts a part reads at least: of running text those that make enough windows."""
        if not (self.running and "scored" in part.needs):
            return min(LEAST_TEXTS, self.available)
        wanted = ADVISED_WINDOWS if part.advises else LEAST_WINDOWS
        return max(1, min(math.ceil(wanted / self.windows_per_text), self.available))

    def sampled(self, part: StudyPart, texts: int) -> str:
        """Return which sample of the texts a part read, in words; nothing where it read all, or none."""
        if not part.share or texts >= self.whole:
            return ""
        return f"a sample of {texts:,} of {self.whole:,} texts"

    def parts(self) -> Iterator[tuple[StudyPart, str, Model | None]]:
        """Yield the parts that make sense, the name of each, and the other model that it is about."""
        labels = self.task.labelled and self.task.kind in ("single", "pair") and not self.running
        there = {
            "base": self.base is not None,
            "other": bool(self.others),
            "scored": self.scored,
            "labels": labels,
            "classes": labels and not self.task.regression,
            "trained": len(self.task.splits) > 1,
            "twin": self.twin is not None,
        }
        for part in parts():
            if not all(there[need] for need in part.needs):
                continue
            if part.over:
                for number_, other in enumerate(self.others, 1):
                    yield part, f"{part.name}-{number_}", other
            else:
                yield part, part.name, None

    def left_out(self) -> list[StudyPart]:
        """Return the parts that a head could have and this one cannot: it does not fit the texts."""
        if self.scored or not self.model.has_head:
            return []
        log.warning("Nothing is scored: %s", self.unscored)
        return [part for part in parts() if "scored" in part.needs and "twin" not in part.needs]

    def values(self, other: Model | None, texts: int, search: int) -> dict[str, Any]:
        """Return what the calls can refer to."""
        length = self.max_length or _LONGEST
        alike = other is not None and other.depth == self.model.depth
        return {
            "model": self.model,
            "base": self.base,
            "other": other,
            "twin": self.twin,
            "start": self.base or self.model,
            "task": self.task,
            "seed": self.seed,
            "tolerance": self.tolerance,
            "pool": "cls" if self.model.head == "classes" else "mean",
            "limit": texts,
            "learned": texts,
            "length": length,
            "attended": min(texts, 60),
            "search": search,
            "head": self.head_share,
            "rules": SEARCHES[search][0],
            "evaluations": SEARCHES[search][1],
            "target_layers": "same" if alike else "every",
            "reading": {"limit": texts, "max_length": length},
            "scored": {"task": self.task, "split": self.split, "limit": texts, "max_length": self.window},
        }

    def seconds(self, part: StudyPart, other: Model | None, texts: int, search: int, per_text: float) -> float:
        """Return about how long a part takes with so many texts, where a forward pass takes so long for one."""
        values = self.values(other, texts, search)
        if self.running and "scored" not in part.needs:  # which reads the beginning of a text, where a score reads all
            per_text *= min(values["length"] / max(self.tokens_per_text, 1), 1)
        total = 0.0
        for call in part.calls:
            passes = _PASSES[call.call]({**call.arguments, **values}, self.model.depth)
            total += _FIXED * (passes > 0) + _TIMED * (call.call == "advise") + passes * texts * per_text
        return total

    def size(self, part: StudyPart, other: Model | None, time_for_it: float, per_text: float) -> tuple[int, int] | None:
        """Return how many texts a part may read in some time, and which search it makes; None where it is too little.

        Rules and evaluations go first, then texts: a score of few texts decides nothing.
        """
        least = self.least(part)
        best: tuple[int, int] | None = None
        for search in range(len(SEARCHES)) if part.advises else (0,):
            fixed = self.seconds(part, other, 0, search, per_text)
            each = (self.seconds(part, other, 1000, search, per_text) - fixed) / 1000
            texts = self.available if each <= 0 else int(min(self.available, (time_for_it - fixed) / each))
            if texts >= least and (best is None or best[0] < min(_ENOUGH, self.available)):
                best = (max(_rounded(texts), least) if texts < self.available else texts, search)
        return (least, 0) if best is None and not part.share else best

    def reduced(self, part: StudyPart, texts: int, search: int) -> str:
        """Return what was reduced to hold the time, in words."""
        words = []
        if sample := self.sampled(part, texts):
            words.append(sample)
        if search and part.advises:
            rules, evaluations, _ = SEARCHES[search]
            words.append(f"the rules {listed(rules or ())}, with at most {evaluations} plans searched")
        return listed(words) if words else ""

    def pilot(self, most: float) -> float:
        """Return how long a forward pass takes for one text, measured on some of them, for about `most` seconds.

        The first run also opens and hashes what later ones find open, so it is believed only where it was long.
        """
        count, spent, first = min(2, self.available), 0.0, True
        while True:
            began = time.monotonic()
            if self.scored:
                evaluate(self.model, self.task, split=self.split, limit=count, max_length=self.window)
            else:
                block_influence(self.model, self.task, split=self.split, limit=count, max_length=_LONGEST)
            took = time.monotonic() - began
            spent += took
            more = min(4 * count, self.available, int(max(most - spent, 0.0) * count / took))
            if first and took <= most:  # what the first run opened is left out by a second one
                more = max(more, count)
            if took >= (3 * _PILOT if first else _PILOT) or more < count + (not first):
                return took / count
            count, first = more, False


def _rounded(texts: int) -> int:
    """Return a number of texts with two digits that count."""
    step = 10 ** max(int(math.log10(max(texts, 1))) - 1, 0)
    return texts // step * step
