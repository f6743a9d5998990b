"""Model in, model out: plans, truncate, skip, save; and what a model would answer under a plan."""

from layerscope.surgery.cutting import cut, skip, truncate
from layerscope.surgery.injection import Injection, inject
from layerscope.surgery.plan import LayerPlan
from layerscope.surgery.saving import save
from layerscope.surgery.trial import Trial

__all__ = ["Injection", "LayerPlan", "Trial", "cut", "inject", "save", "skip", "truncate"]
