"""`ls.compare`: a measure over all pairs of layers of one or several models."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import Any, overload

import numpy as np

from layerscope.data import TaskSource
from layerscope.drawing.captions import listed
from layerscope.errors import InputError, check_level, check_seed, log
from layerscope.extraction.attention import AttentionReading
from layerscope.extraction.extract import examples_of, refuse_reading
from layerscope.extraction.representations import Representations
from layerscope.models.lineage import known_rows, learned
from layerscope.models.load import Model, ModelSource
from layerscope.similarity.attention.compare import AttentionSource, compare_attention
from layerscope.similarity.budget import report_costs, with_budget
from layerscope.similarity.chance import add_baseline, shuffle_count
from layerscope.similarity.execution_plan import Groups, Plan
from layerscope.similarity.jackknife import GROUPS, with_intervals
from layerscope.similarity.layer_sources import LayerSource, Stored, Streamed
from layerscope.similarity.matrices import matrices_of, warn_of_pairs
from layerscope.similarity.registry import Measure
from layerscope.similarity.registry import measure as measure_named
from layerscope.similarity.result import Similarity
from layerscope.similarity.row_means import check_widths


@overload
def compare(a: Any, b: Any = None, *, measure: str = "cka", **options: Any) -> Similarity: ...
@overload
def compare(a: Any, b: Any = None, *, measure: Sequence[str], **options: Any) -> dict[str, Similarity]: ...
def compare(
    a: ModelSource,
    b: ModelSource | None = None,
    *,
    measure: str | Sequence[str] = "cka",
    task: TaskSource | None = None,
    split: str | None = None,
    pool: str = "cls",
    limit: int | None = None,
    max_length: int = 128,
    final_norm: bool = False,
    names: Sequence[str | int] | None = None,
    ci: float | None = None,
    baseline: bool | int = False,
    seed: int = 0,
    memory: float | None = None,
    special: bool = False,
    **options: Any,
) -> Similarity | dict[str, Similarity]:
    """Compare every layer of `a` with every layer of `b` (of `a` itself if there is no `b`).

    Models go over the task once, all of them on the same batches. Kept are statistics or rows, whichever is cheaper and
    fits into memory; measures that need the rows themselves read them from the store. Several measures share the pass.
    Measures of attention need models; they compare attention between words (between tokens with `pool="tokens"`), all
    layers in a pass of their own.

    Args:
        a: A model, representations, an array (n, d), a list of arrays (one per layer), or a list of models or
            representations; a list of several gives all pairs as one block matrix.
        b: The same for the columns.
        measure: The name of a measure, or several; `layerscope measures` (`ls.measures()`) lists them.
        task: A task of the registry (`layerscope tasks` lists them), a file, a folder, a hub id, or a `Task`. Models
            are run on it. Representations have theirs already, and options about texts are refused beside them.
        split: The split; `validation` where there is one, else the only one.
        pool: How token states become rows: `cls`, `mean`, `last`, `words` or `tokens`. Attention is compared between
            words, or tokens.
        limit: Use only the first N examples.
        max_length: The longest text in tokens; the rest is cut off.
        final_norm: Take the last layer after the model's final norm.
        names: The models' names in labels and figures.
        ci: Add an interval of this level, such as 0.95, to every value (`low`, `high`), by a delete-a-group jackknife
            over texts, and the bias that it finds (`bias`). For CKA take `cka_debiased`, which has next to none.
        baseline: Add what texts that have changed places give (`baseline`), which at small n can be high: the mean of
            5 shuffles, or of a number of them. From 19 on, such as 200, also how often chance gives as much
            (`p_values`), the similarity above chance (`calibrated`), and both for the best pair (`best`). Models are
            extracted first. Row k of a text meets row k of another; rows without such a counterpart are left out.
        seed: Decides groups of texts and shuffles.
        memory: GiB that may be used, on the host and on the device each, for what is kept of the texts (moments, or
            rows) and for products; half of what is free if not given. Several passes over the texts are made only
            where neither moments nor rows fit, in memory or in the store, and a warning says why.
        special: For measures of attention: keep special tokens, which are left out otherwise.
        **options: Options of the measures, such as `keep=0.9`; each goes to the measures that have it, or to one of
            them where it is named: `**{"svcca.keep": 0.9}`.

    Returns:
        A `Similarity`, or a dict of them by measure if several were asked for.

    Example:
        >>> import numpy as np, layerscope as ls
        >>> rows = np.random.default_rng(0).normal(size=(200, 8))
        >>> ls.compare([rows, 2 * rows + 1]).values.round(3)
        array([[1., 1.],
               [1., 1.]])
    """
    many = [measure] if isinstance(measure, str) else list(measure)
    wanted = _measures(many, options)
    check_seed(seed)
    if memory is not None and not (isinstance(memory, Real) and memory > 0):
        raise InputError(f"memory is {memory}; it must be a number of GiB above 0.")
    check_level(ci)
    shuffles = shuffle_count(baseline)
    groups = Groups(a, b)
    called = None if names is None else [str(name) for name in names]
    attention = [m for m in wanted if m.needs == "attention"]
    wanted = [m for m in wanted if m.needs != "attention"]
    matrices: dict[str, Similarity] = {}
    opened: list[Model] = []
    if attention:
        _check_attention(attention, wanted, pool, ci, bool(shuffles))
        attending = AttentionReading("tokens" if pool == "tokens" else "words", special, max_length)
        heads = AttentionSource(groups, called, task, split, limit, attending)
        matrices, opened = compare_attention(attention, heads, options), heads.models
    elif special:
        raise InputError("special=True belongs to measures of attention; pools have it in ls.extract.")
    if wanted:
        reading = {"pool": pool, "max_length": max_length, "final_norm": final_norm}
        inputs = _open_inputs(groups, called, task, split, limit, reading)
        plan = Plan(tuple(wanted), options, groups=0 if ci is None else GROUPS, single=inputs.stored and ci is None)
        check_widths(plan.sum_measures, inputs)
        with report_costs(inputs):
            plan = with_budget(plan, inputs, shuffled=bool(shuffles), memory=memory)
            rows = inputs if plan.keep is None else inputs.with_rows(plan.keep)
            found = matrices_of(plan, rows) if ci is None else with_intervals(plan, rows, ci, seed)
            warn_of_pairs(found)
            if shuffles:
                add_baseline(found, plan, rows.with_rows(), shuffles, seed)
        matrices |= found
        opened = inputs.models if isinstance(inputs, Streamed) else []
    _note_learned(matrices, opened, task, split, limit)
    return matrices[many[0]] if isinstance(measure, str) else Similarities({name: matrices[name] for name in many})


def _note_learned(
    matrices: dict[str, Similarity], models: Sequence[Model], task: Any, split: str | None, limit: int | None
) -> None:
    """Warn, and say in the results, where models learned from the rows that they are compared on."""
    if not any(learned(model.network) for model in models):
        return
    whole = examples_of(
        task, split, None
    )  # rows that a model learned from are known by the identity of the whole split
    compared = np.isin(whole.rows, whole.first(limit).rows)
    n = int(compared.sum())
    counts = {model.label: int(known_rows([model], whole)[compared].sum()) for model in models}
    if told := [f"{label} learned from {count:,}" for label, count in counts.items() if count]:
        message = f"{listed(told)} of the {n:,} rows that are compared; on others its layers may be less alike, or more"
        log.warning("%s.", message)
        for similarity in matrices.values():
            data = {**similarity.provenance.get("data", {}), "learned": f"{message}."}
            similarity.provenance = {**similarity.provenance, "data": data}


class Similarities(dict[str, Similarity]):
    """A dict of similarities by measure, which a notebook shows one after the other."""

    def _repr_html_(self) -> str:
        return "".join(similarity._repr_html_() for similarity in self.values())


def _measures(names: Sequence[str], options: dict[str, Any]) -> list[Measure]:
    """The measures of some names; raises InputError where an option belongs to none of them."""
    if not names:
        raise InputError("No measure was named; ls.measures() (layerscope measures) lists them.")
    entries = [measure_named(name) for name in names]
    for option in options:
        name, dot, bare = option.rpartition(".")  # `svcca.keep` is for svcca alone
        if dot and name not in names:
            raise InputError(f"The option {option} is for the measure {name!r}, and {', '.join(names)} was asked for.")
        able = [m for m in entries if m.name == name] if dot else entries
        if not any(bare in m.options() for m in able):
            able[0].check_options({bare: None})
    for entry in entries:
        entry.check_options(entry.own(options))
    return entries


def _check_attention(
    attention: Sequence[Measure], others: Sequence[Measure], pool: str, ci: float | None, baseline: bool
) -> None:
    """Raise InputError where something was asked for that measures of attention do not have."""
    first = attention[0].name
    if ci is not None or baseline:
        raise InputError(
            f"Measures of attention, such as {first}, have no intervals and no baseline; leave out ci and baseline."
        )
    if not others and pool not in ("cls", "words", "tokens"):  # cls is the default: no pool was asked for
        raise InputError(f"{first} compares attention between words or tokens; the pool {pool!r} is for hidden states.")


def _open_inputs(
    groups: Groups,
    names: Sequence[str] | None,
    task: Any,
    split: str | None,
    limit: int | None,
    reading: dict[str, Any],
) -> LayerSource:
    """The layers that are compared: of representations that are there, or of models that are yet to run over a task."""
    if not all(isinstance(source, Representations) for source in groups.sources):
        return Streamed(groups, names, task, split, limit, reading)
    if task is not None:
        raise InputError("A task was given together with representations, which have theirs already.")
    defaults = {"split": None, "limit": None, "pool": "cls", "max_length": 128, "final_norm": False}
    given = {"split": split, "limit": limit, **reading}
    refuse_reading(**{name: (given[name], default) for name, default in defaults.items()})
    return Stored(groups, names)
