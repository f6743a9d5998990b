"""The figures and tables of a paper as files under its own numbers, and a page that shows them in its order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from layerscope.drawing.render import draw, style, write
from layerscope.recipes.claims import Claim
from layerscope.reporting.latex import tex
from layerscope.results import csv_text
from layerscope.store import write_text

if TYPE_CHECKING:
    import pandas

    from layerscope.drawing.figures.grid import GridFigure
    from layerscope.recipes.layout import Layout, PaperTable

FIGURES, TABLES, INDEX = "figures", "tables", "index.html"
_NUMBERS = re.compile(r"(figure|table)s? ((?:\d+(?:, | and )?)+)")
_STYLE = (
    "body{font:15px/1.5 system-ui,sans-serif;max-width:72rem;margin:2rem auto;padding:0 1rem;color:#222}"
    "img{max-width:100%}section{margin:2.5rem 0;border-top:1px solid #ddd}"
    "table{border-collapse:collapse;font-size:13px}"
    "td,th{padding:.15rem .6rem;text-align:left;border-bottom:1px solid #eee}.wide{overflow-x:auto}"
    ".note{color:#555;font-size:13px}"
)


def numbers_in(where: str) -> list[str]:
    """Return the figures and tables that a place in a paper names: `fig12`, `fig13` and `table6`."""
    found = []
    for kind, numbers in _NUMBERS.findall(where):
        found += [f"{'fig' if kind == 'figure' else 'table'}{number}" for number in re.findall(r"\d+", numbers)]
    return found


def in_order(numbers: Sequence[str]) -> list[str]:
    """Return figures or tables by their numbers, then those without one in the order that they have."""

    def key(number: str) -> tuple[bool, int]:
        match = re.fullmatch(r"(?:fig|table)(\d+)", number)
        return (True, 0) if match is None else (False, int(match[1]))

    return sorted(numbers, key=key)


def write_paper(
    folder: Path,
    title: str,
    figures: Mapping[str, GridFigure],
    tables: Mapping[str, PaperTable],
    claims: Sequence[Claim],
    verdicts: pandas.DataFrame,
    layouts: Mapping[str, Layout],
) -> None:
    """Write every figure as PDF and PNG, every table as CSV, LaTeX and Markdown, and the page, into a folder."""
    for number, figure in figures.items():
        with style():
            ax = draw(figure, folder / FIGURES / f"{number}.pdf", title=False)
            write(ax.figure, folder / FIGURES / f"{number}.png")
    for number, table in tables.items():
        place = folder / TABLES
        place.mkdir(parents=True, exist_ok=True)
        write_text(place / f"{number}.csv", csv_text(table.frame))
        write_text(place / f"{number}.tex", latex(table))
        write_text(place / f"{number}.md", markdown(table))
    write_text(folder / INDEX, _page(title, figures, tables, claims, verdicts, layouts))


def markdown(table: PaperTable) -> str:
    """Return a table in Markdown, with its title above it and its notes and reasons below."""
    wide = table.wide()
    lines: list[list[Any]] = [list(wide), ["---"] * len(wide.columns), *wide.to_numpy().tolist()]
    rows = ["| " + " | ".join(str(value).replace("|", "\\|") for value in line) + " |" for line in lines]
    return "\n".join([table.title, "", *rows, "", *_notes(table)]).rstrip("\n") + "\n"


def latex(table: PaperTable) -> str:
    """Return a table in LaTeX, for the package booktabs."""
    wide = table.wide()
    lines = [" & ".join(map(tex, row)) + r" \\" for row in wide.to_numpy().tolist()]
    head = " & ".join(map(tex, wide)) + r" \\"
    body = [
        r"\begin{table}",
        r"\centering",
        rf"\begin{{tabular}}{{{'l' * len(wide.columns)}}}",
        *(r"\toprule", head, r"\midrule", *lines, r"\bottomrule"),
        r"\end{tabular}",
        rf"\caption{{{tex(' '.join([table.title + '.', *_notes(table)]))}}}",
        rf"\label{{tab:{table.number}}}",
        r"\end{table}",
    ]
    return "\n".join(body) + "\n"


def _notes(table: PaperTable) -> list[str]:
    empty = [f"Empty: {places}: {why.rstrip('.')}." for why, places in table.reasons.items()]
    return [*([table.note] if table.note else []), *empty]


def _page(
    title: str,
    figures: Mapping[str, GridFigure],
    tables: Mapping[str, PaperTable],
    claims: Sequence[Claim],
    verdicts: pandas.DataFrame,
    layouts: Mapping[str, Layout],
) -> str:
    parts = []
    order = [*in_order(list(figures)), *in_order(list(tables))]
    places = {claim.name: beside(claim, order, layouts) for claim in claims}
    for number in order:
        own = [claim for claim in claims if number in places[claim.name]]
        shown = _figure(number, figures[number]) if number in figures else _table(number, tables[number])
        made = figures[number] if number in figures else tables[number]
        head = made.title
        stated = [f"<p>{escape(made.shows)}</p>"]
        if own:
            stated.append(f"<ul>{''.join(f'<li>{_claim(claim, verdicts)}</li>' for claim in own)}</ul>")
        elif claims:
            stated.append('<p class="note">No claim rests on it alone.</p>')
        parts.append(f'<section id="{number}"><h2>{escape(head)}</h2>{"".join(stated)}{shown}</section>')
    links = " · ".join(f'<a href="#{number}">{number}</a>' for number in order)
    return (
        f'<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style></head><body><h1>{escape(title)}</h1>"
        "<p>Every figure and table of the paper that was asked for, under its own number, made here. An empty panel or "
        f'cell has its reason. All records stand in <a href="report.html">the report</a>.</p><p>{links}</p>'
        f"{''.join(parts)}</body></html>\n"
    )


def beside(claim: Claim, numbers: Sequence[str], layouts: Mapping[str, Layout]) -> list[str]:
    """Return the figures and tables beside which a claim stands: those that it names.

    A claim that names none of them stands beside those of its experiment that show the call that it is about, or beside
    all of its experiment where none does.
    """
    if named := [number for number in numbers_in(claim.where) if number in numbers]:
        return named
    own = [number for number in numbers if layouts[number].experiment == claim.experiment]
    return [number for number in own if claim.about in layouts[number].calls] or own


def _claim(claim: Claim, verdicts: pandas.DataFrame) -> str:
    """Return a claim and how often it came out how."""
    counts = verdicts[verdicts["claim"] == claim.name]["verdict"].value_counts()
    outcome = ", ".join(f"{verdict} in {count}" for verdict, count in counts.items()) or "not tested"
    return f"{escape(claim.says)} <b>{escape(outcome)}</b>."


def _figure(number: str, figure: GridFigure) -> str:
    image = f'<img src="{FIGURES}/{number}.png" alt="{escape(figure.title)}">'
    return f'<p><a href="{FIGURES}/{number}.pdf">{image}</a></p>'


def _table(number: str, table: PaperTable) -> str:
    wide = table.wide()
    head = "".join(f"<th>{escape(str(name))}</th>" for name in wide)
    rows = (f"<tr>{''.join(f'<td>{escape(str(v))}</td>' for v in row)}</tr>" for row in wide.to_numpy().tolist())
    notes = "".join(f'<p class="note">{escape(note)}</p>' for note in _notes(table))
    files = ", ".join(f'<a href="{TABLES}/{number}.{end}">{end}</a>' for end in ("csv", "tex", "md"))
    return f'<div class="wide"><table><tr>{head}</tr>{"".join(rows)}</table></div>{notes}<p class="note">{files}</p>'
