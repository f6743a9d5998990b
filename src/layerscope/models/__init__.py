"""Models: loading, anatomy (where embeddings, blocks and head are), replay."""

from layerscope.models.anatomy import Anatomy, families
from layerscope.models.load import Model, load
from layerscope.models.replay import Replay
from layerscope.models.wrapping import wrap

__all__ = ["Anatomy", "Model", "Replay", "families", "load", "wrap"]
