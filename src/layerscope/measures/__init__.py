"""Moments and the similarity measures: one file a family, one registry."""

from layerscope.measures.moments import Moments
from layerscope.measures.registry import Measure, measure, measures

__all__ = ["Measure", "Moments", "measure", "measures"]
