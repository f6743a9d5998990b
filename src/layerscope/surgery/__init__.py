"""Model in, model out: plans, truncate, skip, save; and what a model would answer under a plan."""

from layerscope.surgery.cutting import cut, skip, truncate
from layerscope.surgery.plan import LayerPlan
from layerscope.surgery.saving import save
from layerscope.surgery.trial import Trial

__all__ = ["LayerPlan", "Trial", "cut", "save", "skip", "truncate"]
