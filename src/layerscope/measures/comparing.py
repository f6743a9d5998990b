"""`ls.compare`: a measure over all pairs of layers of one or several models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

from layerscope.errors import InputError, check_seed, log
from layerscope.extract.attending import Attending
from layerscope.extract.representations import Representations
from layerscope.measures.attention_work import AttentionWork, compare_attention
from layerscope.measures.matrix import Cells, from_moments, matrices, needs, say_warnings, takes_dual
from layerscope.measures.moments import product_bytes
from layerscope.measures.registry import Measure, measure
from layerscope.measures.similarity import Similarity
from layerscope.measures.tiles import GIB, MEMORY
from layerscope.measures.uncertainty import GROUPS, Grouping, add_baseline, add_intervals, check_level, left_out, whole
from layerscope.measures.work import Groups, Stored, Streamed, Tile, Work


@overload
def compare(a: Any, b: Any = None, *, measure: str = "cka", **options: Any) -> Similarity: ...
@overload
def compare(a: Any, b: Any = None, *, measure: Sequence[str], **options: Any) -> dict[str, Similarity]: ...
def compare(
    a: Any,
    b: Any = None,
    *,
    measure: str | Sequence[str] = "cka",
    task: Any = None,
    split: str | None = None,
    pool: str = "cls",
    limit: int | None = None,
    max_length: int = 128,
    final_norm: bool = False,
    names: Sequence[str] | None = None,
    ci: float | None = None,
    baseline: bool = False,
    seed: int = 0,
    memory: float = MEMORY,
    keep_special: bool = False,
    **options: Any,
) -> Similarity | dict[str, Similarity]:
    """Every layer of `a` against every layer of `b` (of `a` itself if there is no `b`) under one or several measures.

    `a` and `b` are representations, or models with a `task`: those stream, both models forward on the same batches,
    and only statistics are kept (measures that need the rows themselves read them from the store). A list of more than
    two gives all pairs as one block matrix. Several measures share the pass. `options` go to the measures that have
    them. `names` are the models' names in labels and figures.

    `ci=0.95` adds an interval to every value (`low`, `high`) by a delete-a-group jackknife over texts, from the moments
    of each group where those fit and else from rows; `baseline=True` adds what shuffled rows give, which at small n can
    be high. Where rows are needed, models are extracted first. `memory` (GiB) bounds cross products: where those of
    all layers take more, there are several passes over parts of the pairs.

    Measures of attention need models. They compare attention between words (between tokens with `pool="tokens"`), all
    layers in a pass of their own; `keep_special=True` keeps special tokens, which are else dropped.
    """
    many = [measure] if isinstance(measure, str) else list(measure)
    wanted = _measures(many, options)
    check_seed(seed)
    if not memory > 0:
        raise InputError(f"memory is {memory}; it must be a number of GiB above 0.")
    if ci is not None:
        check_level(ci)
    groups = Groups(a, b)
    attention = [m for m in wanted if m.needs == "attention"]
    wanted = [m for m in wanted if m.needs != "attention"]
    found: dict[str, Similarity] = {}
    if attention:
        _check_attention(attention, wanted, pool, ci, baseline)
        attending = Attending("tokens" if pool == "tokens" else "words", keep_special, max_length)
        found = compare_attention(attention, AttentionWork(groups, names, task, split, limit, attending), options)
    elif keep_special:
        raise InputError("keep_special belongs to measures of attention; pools have special=True in ls.extract.")
    if wanted:
        reading = {"pool": pool, "max_length": max_length, "final_norm": final_norm}
        work = _work(groups, names, task, split, limit, reading)
        found |= _compare_states(wanted, work, options, memory, seed, ci, baseline)
    return found[many[0]] if isinstance(measure, str) else {name: found[name] for name in many}


def _check_attention(
    attention: Sequence[Measure], others: Sequence[Measure], pool: str, ci: float | None, baseline: bool
) -> None:
    first = attention[0].name
    if ci is not None or baseline:
        raise InputError(f"Intervals and baselines (ci, baseline) are not there for measures of attention, as {first}.")
    if not others and pool not in ("cls", "words", "tokens"):  # cls: nothing was said
        raise InputError(f"{first} compares attention between words or tokens; the pool {pool!r} is for hidden states.")


def _work(
    groups: Groups,
    names: Sequence[str] | None,
    task: Any,
    split: str | None,
    limit: int | None,
    reading: dict[str, Any],
) -> Work:
    if not all(isinstance(source, Representations) for source in groups.sources):
        return Streamed(groups, names, task, split, limit, reading)
    if task is not None:
        raise InputError("A task was given together with representations, which have theirs already.")
    return Stored(groups, names)


def _compare_states(
    wanted: list[Measure],
    work: Work,
    options: dict[str, Any],
    memory: float,
    seed: int,
    ci: float | None,
    baseline: bool,
) -> dict[str, Similarity]:
    """Measures of hidden states."""
    by_rows = baseline or (ci is not None and not _by_group(wanted, work, options, memory))
    if isinstance(work, Streamed) and by_rows:
        work = Stored(work.groups.of(work.representations()), work.labels)
    job = _Job(wanted, work, options, memory, seed)
    found = job.values() if ci is None else job.with_intervals(ci)
    say_warnings(found)
    if baseline:
        job.add_baseline(found)
    return found


def _measures(names: Sequence[str], options: dict[str, Any]) -> list[Measure]:
    if not names:
        raise InputError("No measure was named; ls.measures() (layerscope measures) lists them.")
    found = [measure(name) for name in names]
    for option in options:
        if not any(option in m.options() for m in found):
            found[0].check_options({option: None})
    return found


def _by_group(wanted: Sequence[Measure], work: Work, options: dict[str, Any], memory: float) -> bool:
    """Whether intervals can come from the moments of each group of texts: all in memory, and no rows needed."""
    if any(m.needs != "moments" for m in wanted) or takes_dual(wanted, work, options):
        return False
    return (GROUPS + 2) * product_bytes(work.widths, work.pairs) <= memory * GIB


class _Job:
    """The wanted measures over some work, with what is asked for beside the values."""

    def __init__(self, wanted: list[Measure], work: Work, options: dict[str, Any], memory: float, seed: int) -> None:
        self.wanted, self.work, self.options, self.memory, self.seed = wanted, work, options, memory, seed

    def values(self) -> dict[str, Similarity]:
        return matrices(self.wanted, self.work, self.options, self.memory)

    def with_intervals(self, level: float) -> dict[str, Similarity]:
        """Values and intervals, from the moments of each group of texts or from rows."""
        groups = Grouping(self.work.texts, self.seed)
        if _by_group(self.wanted, self.work, self.options, self.memory):
            log.info("Intervals from the moments of %d groups of texts.", groups.count)
            parts = self.work.by_group(groups, **needs(self.wanted))
            total = whole(parts)
            found = self._of(total)
            without = [self._of(tile) for tile in left_out(parts, total)]
        else:
            assert isinstance(self.work, Stored)
            log.info("Intervals from the rows, %d times without a group of texts.", groups.count)
            found, group = self.values(), groups.of(self.work.texts)
            without = [
                self._again(Groups.of(self.work.groups, [r.select(rows=group != g) for r in self.work.reps]))
                for g in range(groups.count)
            ]
        add_intervals(found, without, level)
        return found

    def add_baseline(self, found: dict[str, Similarity]) -> None:
        assert isinstance(self.work, Stored)
        groups, reps = self.work.groups, self.work.reps
        rows, columns = ([reps[s] for s in side] for side in (groups.row_sources, groups.column_sources))
        add_baseline(found, rows, columns, lambda a, b: self._again(Groups(a, b)), self.seed)

    def _again(self, groups: Groups) -> dict[str, Similarity]:
        """The same measures of other rows."""
        return matrices(self.wanted, Stored(groups, None), self.options, self.memory)

    def _of(self, tile: Tile) -> dict[str, Similarity]:
        """The same measures from given moments."""
        cells = [Cells(m, self.work, self.options) for m in self.wanted]
        from_moments(cells, [tile])
        return {cell.measure.name: cell.similarity() for cell in cells}
