"""Models: loading them, their architectures (where embeddings, blocks and heads are), replay and its self-check."""

from layerscope.models.architecture import families
from layerscope.models.families import Architecture
from layerscope.models.load import Model, ModelSource, load
from layerscope.models.replay import Replay
from layerscope.models.wrap import wrap

__all__ = ["Architecture", "Model", "ModelSource", "Replay", "families", "load", "wrap"]
