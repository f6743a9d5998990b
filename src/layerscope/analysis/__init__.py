"""What combines the rooms below: localization, blocks."""

from layerscope.analysis.blocks import Blocks, blocks
from layerscope.analysis.curves import Curve
from layerscope.analysis.localization import localization

__all__ = ["Blocks", "Curve", "blocks", "localization"]
