"""Extraction runs models over texts and gives their states or attention weights, by the one loop over texts."""
