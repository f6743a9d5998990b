"""Attention weights compared: head by head, in one pass over the texts."""
