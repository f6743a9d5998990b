"""The kinds of figures: one file per kind, with its data and how matplotlib draws it."""
