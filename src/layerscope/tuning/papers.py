"""The strategies that the papers compare."""

from __future__ import annotations

# Xie et al. 2022: baselines, l*-down with the head on l* and on top, l*-up (tables 6 to 9, 11, 12).
XIE = (
    *("full", "(L, L, L)", "(L-1, L, L)", "(L-2, L, L)"),
    *("(l*, l*, l*)", "(l*-1, l*, l*)", "(l*-2, l*, l*)", "(1, l*, l*)"),
    *("(l*, l*, L)", "(l*-1, l*, L)", "(l*-2, l*, L)", "(l*+1, L, L)"),
)
# Wu et al. 2020, table 1.
WU = ("full", "freeze-top-4", "freeze-top-6", "freeze-bottom-4", "freeze-bottom-6")


def middle_layer(depth: int) -> int:
    """Xie et al.'s middle layer: 13 of 24, so the first of the upper half."""
    return min(depth // 2 + 1, depth)


def middle(depth: int) -> tuple[str, ...]:
    """Xie et al.'s middle-layer baselines for a depth."""
    m = middle_layer(depth)
    return tuple(f"({max(m - k, 1)}, {m}, {head})" for head in (m, depth) for k in range(3))


def every(depth: int) -> list[str]:
    """All of them, and head-only."""
    return list(dict.fromkeys((*XIE, *WU, "head-only", *middle(depth))))


def of_preset(preset: str | None, depth: int) -> list[str]:
    """The strategies that go with a paper's hyperparameters; Xie et al.'s where it compares none."""
    return list(WU if preset == "wu2020" else (*XIE, *middle(depth)))
