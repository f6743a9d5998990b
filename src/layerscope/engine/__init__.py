"""Mapping keyed jobs: in this process, on several processes, on Ray."""

from layerscope.engine.job import Job, Outcome
from layerscope.engine.mapping import ENGINES, check_engine, folders_of, map_jobs

__all__ = ["ENGINES", "Job", "Outcome", "check_engine", "folders_of", "map_jobs"]
