"""Moments and the similarity measures: one file a family, one registry."""

from layerscope.measures.attention_weights import compare_weights
from layerscope.measures.comparing import compare
from layerscope.measures.moments import Moments
from layerscope.measures.registry import Measure, measure, measures
from layerscope.measures.similarity import Axis, Similarity, panels

__all__ = ["Axis", "Measure", "Moments", "Similarity", "compare", "compare_weights", "measure", "measures", "panels"]
