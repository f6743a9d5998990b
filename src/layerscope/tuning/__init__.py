"""Training under a strategy: which layers, with which method, at what cost, and what came out."""
