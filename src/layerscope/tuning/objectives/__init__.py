"""Objectives that heal a cut model: the text itself, labels, or the whole model's answers; one file per kind."""
