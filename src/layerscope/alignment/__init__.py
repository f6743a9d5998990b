"""Aligners: maps from one representation space to another, linear and not, behind one interface."""

from layerscope.alignment.aligner import Aligner
from layerscope.alignment.aligning import METHODS, align, align_all, load_aligner

__all__ = ["METHODS", "Aligner", "align", "align_all", "load_aligner"]
