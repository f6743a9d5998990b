"""What an entry of the table is, and what several entries share."""

from __future__ import annotations

import dataclasses
from typing import Any

ENGINE = {"engine": {"engine": "local"}}  # others are compared with it in tests/engine, and where jobs are made


@dataclasses.dataclass
class Call:
    base: dict[str, Any]
    keyed: dict[str, Any]
    neutral: dict[str, Any] = dataclasses.field(default_factory=dict)
    options: tuple[str, ...] = ()  # what **options may be
    rounded: tuple[str, ...] = ("batch_tokens",)


def pairs(change: Any) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """A change as the pairs of calls that it stands for."""
    many = change if isinstance(change, list) else [change]
    return [each if isinstance(each, tuple) else ({}, each) for each in many]
