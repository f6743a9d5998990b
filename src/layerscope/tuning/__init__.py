"""Training under a strategy: methods, the frozen-prefix cache, heads."""

from layerscope.tuning.strategy import Strategy

__all__ = ["Strategy"]
