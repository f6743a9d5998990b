"""Jobs with keys, run in this process, in several processes, or on Ray."""

from layerscope.engine.jobs import Job, Outcome, check_engine, folders_of, map_jobs

__all__ = ["Job", "Outcome", "check_engine", "folders_of", "map_jobs"]
