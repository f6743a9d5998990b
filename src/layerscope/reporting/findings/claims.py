"""What a reproduction says of a paper's claims."""

from __future__ import annotations

from typing import TYPE_CHECKING

from layerscope.drawing.words import listed
from layerscope.reporting.findings.finding import ANSWER, SUPPORT, Finding

if TYPE_CHECKING:
    import pandas

    from layerscope.results import Record

HOLDS, FAILS, UNDECIDED = "holds", "does not hold", "undecided"
_MOST = 5  # claims that are told one by one


def claims(frame: pandas.DataFrame, record: Record) -> list[Finding]:
    """How many claims hold, and each of the first few."""
    tested = frame[frame["verdict"].isin((HOLDS, FAILS, UNDECIDED))]
    if not len(tested):
        return [Finding("No claim could be tested.", f"{len(frame)} combinations were tried", False, ANSWER)]
    names = list(dict.fromkeys(tested["claim"]))
    everywhere = [name for name in names if set(tested[tested["claim"] == name]["verdict"]) == {HOLDS}]
    open_ = int((tested["verdict"] == UNDECIDED).sum())
    text = f"{len(everywhere)} of {len(names)} claims hold wherever they were tested"
    text += f": {listed(everywhere[:_MOST])}." if everywhere else "."
    combinations = len(tested)
    evidence = f"{combinations} combinations of models and tasks, of which {open_} are undecided"
    return [Finding(text, evidence, open_ == 0, ANSWER), *(_claim(tested, name) for name in names[:_MOST])]


def _claim(tested: pandas.DataFrame, name: str) -> Finding:
    part = tested[tested["claim"] == name]
    counts = {verdict: int((part["verdict"] == verdict).sum()) for verdict in (HOLDS, FAILS, UNDECIDED)}
    counted = [f"{verdict} in {count}" for verdict, count in counts.items() if count]
    text = f"{name}: {listed(counted)} of {len(part)}."
    unsure = f", except for {counts[UNDECIDED]} that span it" if counts[UNDECIDED] else ""
    evidence = f"95% intervals over texts beside the claim's threshold{unsure}"
    return Finding(text, evidence, counts[UNDECIDED] == 0, SUPPORT)
