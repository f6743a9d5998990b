"""`ls.describe`: what a model is, what it was made from, and whether it can be cut safely."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from layerscope.cutting.plan import LayerPlan
from layerscope.drawing.captions import numbers
from layerscope.errors import ModelError
from layerscope.extraction.loop import gpu_tokens
from layerscope.models.extras import parameter_count
from layerscope.models.fingerprint import hashed_once
from layerscope.models.heads import HEADS
from layerscope.models.lineage import recorded
from layerscope.models.load import Model, ModelSource, load
from layerscope.models.memory import CARDS, fitting, takes
from layerscope.models.selfcheck import faults
from layerscope.models.wrap import WrappedModel
from layerscope.results import Tabled, provenance_of

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figure import Figure
    from layerscope.models.lineage import Lineage, ScoreEntry

_MARKS: Any = {"learned": {"__all__": {"rows", "marks"}}}  # which rows they were, for programs that leave them out


class Description(Tabled):
    """What a model is: `frame` has one row for each fact, `.facts` them by name, `.made_from` its lineage, if any.

    Example:
        >>> import layerscope as ls
        >>> ls.describe("garden:bert-s0").facts["family"]
        'bert'
    """

    name = "description"

    def __init__(
        self,
        frame: pandas.DataFrame,
        provenance: Mapping[str, Any],
        facts: Mapping[str, Any],
        made_from: Mapping[str, Any] | None,
    ) -> None:
        super().__init__(frame, provenance)
        self.facts, self.made_from = facts, made_from

    def figures(self) -> list[Figure]:
        return [numbers(f"What {self.facts['model']} is", "Each fact with its value.", self.frame)]

    def __repr__(self) -> str:
        return f"Description({self.facts['model']}, {self.facts['class']})"


def describe(model: ModelSource) -> Description:
    """Describe a model: its class, head, family and size, whether its blocks can be run one by one, and its origin.

    It also says about how much memory a GPU needs to evaluate it, to advise on it, to heal what is cut from it and to
    tune it, and which of that cards of 24, 48 and 80 GB have room for.

    For a model that layerscope saved it also says what it was made from: base, licence, plan, trainings and scores.

    Args:
        model: A checkpoint: a folder, a hub id, `id@revision`, a GGUF file, `demo:minilm`, `demo:smollm2`,
            `garden:NAME`, `random:` and one of these, or a `Model`.

    Returns:
        A `Description`: `frame` has the columns what and is; `facts` has the same by name.

    Example:
        >>> import layerscope as ls
        >>> facts = ls.describe("garden:bert-s0").facts
        >>> facts["self_check"]
        'passed: its blocks can be run one by one'
    """
    opened = load(model)
    with hashed_once():
        return _described(opened)


def _described(opened: Model) -> Description:
    """Return the description of a model that is open."""
    import pandas

    found = opened.architecture.family + (" (found by the generic finder)" if opened.architecture.generic else "")
    if isinstance(opened, WrappedModel):
        checked = "only states can be read: no cutting, no injection, no tuning"
    else:
        try:
            checked = next(faults(opened), None) or "passed: its blocks can be run one by one"
        except ModelError as error:  # a model tuned with prefixes, whose blocks cannot be run again at all
            checked = str(error)
    facts = {
        "model": opened.name,
        "class": opened.described()["class"],
        "head": "none" if opened.head == "none" else HEADS[opened.head].words,
        "family": found,
        "blocks": f"1..{opened.depth} at {opened.architecture.blocks}",
        "width": opened.width,
        "parameters": parameter_count(opened.network),
        "float_type": str(opened.network.dtype).removeprefix("torch."),
        "tokenizer": type(opened.tokenizer).__name__ if opened.tokenizer else "none",
        "self_check": checked,
        **({} if isinstance(opened, WrappedModel) else _memory(opened)),
    }
    lineage = recorded(opened.network)
    described = {**facts, **({} if lineage is None else _made_from(lineage))}
    frame = pandas.DataFrame(
        {"what": [name.replace("_", " ") for name in described], "is": [str(value) for value in described.values()]}
    )
    made = None if lineage is None else lineage.model_dump(mode="json", by_alias=True, exclude=_MARKS)
    return Description(frame, provenance_of([opened]), facts, made)


def _memory(model: Model) -> dict[str, str]:
    """Return what a model takes on a GPU, and what cards of usual sizes have room for; an estimate."""
    taken = takes(model, gpu_tokens(model))
    rows = {"memory": "; ".join(f"{what} {size / 1e9:.1f} GB" for what, size in taken.items())}
    for card in CARDS:
        rows[f"on_{card}_GB"] = ", ".join(fitting(taken, card)) or "nothing, unless a part of it waits on the host"
    return rows


def _made_from(lineage: Lineage) -> dict[str, str]:
    """Return what `layerscope.json` beside the weights says, by the names of rows of the table."""
    base, facts = lineage.base, dict[str, list[str]]()
    if base is not None:
        facts["base"] = [base.name]
        facts["revision"] = [base.revision] if base.revision else []
        licences = [base.license] if isinstance(base.license, str) else base.license
        facts["licence"] = [", ".join(licences) if licences else "none is stated"]
    facts["plan"] = [
        f"{LayerPlan.from_spec(step.model_dump())} (of the {step.depth} blocks of {step.origin})"
        for step in lineage.steps
    ]
    facts["trained"] = [
        f"{' '.join(filter(None, (entry.method, entry.strategy)))} on {entry.n} rows of {entry.task} ({entry.split})"
        for entry in lineage.training
    ]
    facts["learned_from"] = [f"{entry.n} rows of {entry.task} ({entry.split})" for entry in lineage.learned]
    facts["scores"] = [_score(entry) for entry in lineage.scores]
    return {name: "; ".join(values) for name, values in facts.items() if values}


def _score(entry: ScoreEntry) -> str:
    """Return a score of the record as one line."""
    value = "undefined" if entry.score is None else f"{entry.score:.4f}"
    bounds = "" if entry.interval is None else " ({:.4f} to {:.4f})".format(*entry.interval)
    return f"{entry.metric} {value}{bounds} on {entry.n} of {entry.task} ({entry.split})"
