"""Every similarity measure that layerscope and ReSi have in common, on one pair of matrices, timed side by side.

Run with: python benchmarks/resi.py --resi FOLDER [--rounds 3] [--rows 1000] [--widths 768 768] [--seed 0]

ReSi is the code of Klabunde et al. 2025, "ReSi: A Comprehensive Benchmark for Representational Similarity Measures". It
cannot be installed as a package and nothing of it is copied here: FOLDER is a checkout of
https://github.com/mklabunde/resi, with the folder `repsim` at its root. Of `repsim/measures` only the files of the
measures below are imported; they need scikit-learn, einops and loguru (`pip install einops loguru`).

Both sides get the same float64 arrays and are called in turn, each with its defaults except where an option makes the
two the same number. The least of the rounds counts. Where the codes define a measure differently, so that no option
makes them equal, the table says so: see "PWCCA here and elsewhere" and "SVCCA here and elsewhere" in docs/measures.md.
Left out are IMD, which ReSi estimates with random numbers by a library of its own, and what layerscope does not have.
"""

from __future__ import annotations

import argparse
import importlib
import math
import platform
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

import numpy as np
import torch
from similarity import seconds

import layerscope as ls


class Common(NamedTuple):
    """A measure that both have, and what makes ours the number that ReSi gives."""

    name: str
    file: str  # of repsim/measures
    resi: str  # the class in it
    options: Mapping[str, Any] = MappingProxyType({})
    value: Callable[[float], float] = float
    swapped: bool = False  # ReSi predicts its first argument from its second
    differs: bool = False  # the definitions differ, and so do the values


COMMON = [
    Common("cka", "cka", "CKA"),
    Common("svcca", "cca", "SVCCA", differs=True),
    Common("pwcca", "cca", "PWCCA", {"keep": 1.0}, differs=True),  # ReSi cuts nothing off before
    Common("linear_regression", "linear_regression", "LinearRegression", swapped=True),
    Common("gulp", "gulp", "Gulp", value=lambda distance: distance**2),
    Common("eigenspace_overlap", "eigenspace_overlap", "EigenspaceOverlapScore"),
    Common(
        "procrustes",
        "procrustes",
        "OrthogonalProcrustesCenteredAndNormalized",
        value=lambda similarity: math.sqrt(max(0.0, 2 - 2 * similarity)),
    ),
    Common("procrustes_angular", "procrustes", "OrthogonalAngularShapeMetricCentered"),
    Common("procrustes_size_and_shape", "procrustes", "ProcrustesSizeAndShapeDistance"),
    Common("permutation_procrustes", "procrustes", "PermutationProcrustes"),
    Common("aligned_cosine", "procrustes", "AlignedCosineSimilarity"),
    Common("hard_correlation_match", "correlation_match", "HardCorrelationMatch"),
    Common("soft_correlation_match", "correlation_match", "SoftCorrelationMatch"),
    Common("distance_correlation", "distance_correlation", "DistanceCorrelation"),
    Common("rsa", "rsa", "RSA"),
    Common("rsm_norm_difference", "rsm_norm_difference", "RSMNormDifference", {"norm": "spectral"}),
    Common("jaccard_knn", "nearest_neighbor", "JaccardSimilarity"),
    Common("rank_similarity", "nearest_neighbor", "RankSimilarity"),
    Common("second_order_cosine", "nearest_neighbor", "SecondOrderCosineSimilarity", {"distances": True}),
    Common("concentricity_difference", "statistics", "ConcentricityDifference"),
    Common("magnitude_difference", "statistics", "MagnitudeDifference"),
    Common("uniformity_difference", "statistics", "UniformityDifference"),
]


def pair(rows: int, widths: tuple[int, int], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A synthetic layer with columns of different scale and an offset, and one to which it has drifted.

    Rows are about one long: with longer ones the uniformity of every layer is the same, and the difference 0.
    """
    generator = np.random.default_rng(seed)
    x = generator.standard_normal((rows, widths[0])) * np.logspace(0, -1, widths[0])
    x += 0.2 * generator.standard_normal(widths[0])
    x /= np.sqrt((x**2).sum(axis=1).mean())
    y = 0.3 * x.std() * generator.standard_normal((rows, widths[1]))
    shared = min(widths)
    y[:, :shared] += 1.1 * x[:, :shared]
    return x, y


def find_resi(folder: Path) -> None:
    """Make the files of `repsim/measures` importable by their names, without the package's own imports.

    The `__init__` of that package imports all measures, and with them libraries that the ones timed here do not need.
    """
    measures = folder / "repsim" / "measures"
    if not (measures / "utils.py").is_file():
        raise SystemExit(f"{folder} is not a checkout of mklabunde/resi: it has no file repsim/measures/utils.py")
    sys.path.insert(0, str(folder))
    for name, place in (("repsim", measures.parent), ("repsim.measures", measures)):
        package = ModuleType(name)
        package.__path__ = [str(place)]
        sys.modules[name] = package
    # ReSi logs two lines whenever it computes a distance correlation.
    importlib.import_module("loguru").logger.disable("repsim")


def calls(measure: Common, x: np.ndarray, y: np.ndarray) -> tuple[Callable[[], float], Callable[[], float]]:
    """Our call and ReSi's, for the same number."""
    ours = ls.measure(measure.name)
    resi = getattr(importlib.import_module(f"repsim.measures.{measure.file}"), measure.resi)()
    first, second = (y, x) if measure.swapped else (x, y)
    return lambda: measure.value(ours(first, second, **measure.options)), lambda: float(resi(x, y, "nd"))


def difference(a: float, b: float) -> float:
    """The difference as a share of the larger of the two."""
    return 0.0 if a == b else abs(a - b) / max(abs(a), abs(b))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--resi", type=Path, required=True, metavar="FOLDER", help="a checkout of mklabunde/resi")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--widths", type=int, nargs=2, default=(768, 768))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds: at least 1")
    if options.rows <= max(options.widths) + 1:
        parser.error("--rows: more than the columns, since GULP and what inverts a covariance have no value otherwise")
    if options.widths[1] < options.widths[0]:
        parser.error("--widths: the second not below the first, where ReSi's PWCCA ends with an index error")
    find_resi(options.resi)
    # Both warn of correlations that are 1 for lack of rows; here it is the time that counts.
    warnings.simplefilter("ignore")

    x, y = pair(options.rows, tuple(options.widths), options.seed)
    shapes = " and ".join(f"{len(states):,} x {states.shape[1]}" for states in (x, y))
    print(f"{shapes}, float64, least of {options.rounds}, {platform.machine()}, {torch.get_num_threads()} threads")
    titles = ("ours, s", "ReSi, s", "ReSi / ours", "our value", "ReSi's value", "difference")
    print(f"{'measure':26}" + "".join(f"{title:>14}" for title in titles))
    times = []
    for measure in COMMON:
        actions = calls(measure, x, y)
        best, values = [math.inf, math.inf], [math.nan, math.nan]
        for _ in range(options.rounds):
            for side, action in enumerate(actions):
                taken, values[side] = seconds(action)
                best[side] = min(best[side], taken)
        times.append(best)
        numbers = f"{best[0]:14.5f}{best[1]:14.5f}{best[1] / best[0]:14.2f}{values[0]:14.6g}{values[1]:14.6g}"
        note = "  other definition" if measure.differs else ""
        print(f"{measure.name:26}{numbers}{difference(*values):14.1e}{note}", flush=True)
    ours, resi = (sum(side) for side in zip(*times, strict=True))
    print(f"{f'all {len(COMMON)}, sums':26}{ours:14.5f}{resi:14.5f}{resi / ours:14.2f}")


if __name__ == "__main__":
    main()
