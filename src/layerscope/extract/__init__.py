"""Model + data -> representations or attentions: pooling, words, batches."""

from layerscope.extract.attention import Attentions, attentions
from layerscope.extract.exam import evaluate
from layerscope.extract.representations import Representations
from layerscope.extract.run import extract
from layerscope.extract.streaming import Batch, Consumer, stream

__all__ = ["Attentions", "Batch", "Consumer", "Representations", "attentions", "evaluate", "extract", "stream"]
