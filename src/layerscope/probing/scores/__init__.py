"""Layer scores: one class per file, found by its name (`layerscope.registry.LAYER_SCORES`)."""
