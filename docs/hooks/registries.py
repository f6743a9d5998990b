"""Tables of what can be chosen, from the registries: `<!-- registry: aligners -->` in a page becomes its table."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_MARKER = re.compile(r"<!-- registry: (\w+) -->")


def on_page_markdown(markdown: str, **_: Any) -> str:
    return _MARKER.sub(lambda match: TABLES[match[1]](), markdown)


def aligners() -> str:
    """Every aligner, those that must be beaten first."""
    from layerscope.alignment.aligner import by_place, options_of
    from layerscope.registry import ALIGNERS

    rows = []
    for name in by_place():
        kind = ALIGNERS[name]
        widths = "with `pad=True`" if kind.same_width else "yes"
        inverse = f"none: {kind.no_inverse}" if kind.no_inverse else "yes"
        options = ", ".join(f"`{option}`" for option in options_of(name))
        row = {"method": f"`{name}`", "map": _sentence(kind), "inverse": inverse, "different widths": widths}
        rows.append({**row, "options": options})
    return _table(rows)


def methods() -> str:
    """Every method of tuning."""
    from layerscope.registry import METHODS

    rows = []
    for name in METHODS:
        kind = METHODS[name]
        size = f"{kind.size_is}, {kind.default_size}" if kind.size_is else "none"
        kept = "a standard checkpoint" if kind.standard else "the base model and an adapter"
        rows.append({"method": f"`{name}`", "what it trains": _sentence(kind), "`size`": size, "what is kept": kept})
    return _table(rows)


def measures() -> str:
    """Every measure, as `ls.measures()` lists them."""
    from layerscope.registry import MEASURES

    rows = [
        {
            "measure": f"`{m.name}`",
            "what it is": m.doc.splitlines()[0],
            "range": f"{_bound(m.low)} to {_bound(m.high)}",
            "symmetric": "yes" if m.symmetric else "no",
            "needs": m.needs,
            "source": m.source,
        }
        for m in MEASURES.values()
    ]
    return _table(rows)


def rules() -> str:
    """Every rule that proposes plans to `ls.advise`."""
    from layerscope.registry import RULES

    rows = []
    for name in RULES:
        kind = RULES[name]
        looks = "yes" if kind.looks else "no"
        row = {"rule": f"`{name}`", "what it leaves out": _sentence(kind), "looks at texts": looks}
        rows.append({**row, "source": kind.source})
    return _table(rows)


def layer_scores() -> str:
    """Every layer score."""
    from layerscope.registry import LAYER_SCORES

    rows = []
    for name in LAYER_SCORES:
        kind = LAYER_SCORES[name]
        row = {"score": f"`{name}`", "what it is": _sentence(kind), "best": "least" if kind.least else "greatest"}
        zero = "depends on the rows" if kind.zero is None else f"{kind.zero:g}"
        labels = "classes, numbers" if kind.numbers else "classes"
        unchanged = ", ".join(kind.unchanged_by)
        rows.append(
            {**row, "labels": labels, "labels at random": zero, "unchanged by": unchanged, "source": kind.source}
        )
    return _table(rows)


TABLES = {
    "rules": rules,
    "aligners": aligners,
    "methods": methods,
    "measures": measures,
    "layer_scores": layer_scores,
}


def _sentence(kind: type) -> str:
    """The first sentence of a class's description."""
    text = " ".join((kind.__doc__ or "").split("\n\n")[0].split())
    return re.split(r"(?<=[.)])\s+(?=[A-Z])", text)[0]


def _bound(value: float) -> str:
    return f"{value:.2g}".replace("-inf", "-∞").replace("inf", "∞")


def _table(rows: Sequence[Mapping[str, str]]) -> str:
    return "\n".join(_lines(rows))


def _lines(rows: Sequence[Mapping[str, str]]) -> Iterator[str]:
    yield f"| {' | '.join(rows[0])} |"
    yield f"| {' | '.join('---' for _ in rows[0])} |"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|').replace('<', '&lt;') for cell in row.values())} |"
