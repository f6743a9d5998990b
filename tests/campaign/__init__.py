"""The campaign: kills, broken inputs, crowds and hostile folders against the whole program, seeded.

`python -m tests.campaign --seed 0 --minutes 5`, or `make campaign` for the run that docs/reliability.md reports.
"""
