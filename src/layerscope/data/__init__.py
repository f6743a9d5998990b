"""Data: tasks, corpora, and the files that they are read from."""

from layerscope.data.examples import Examples
from layerscope.data.load import TaskSource, task
from layerscope.data.registry import tasks
from layerscope.data.task import Task

__all__ = ["Examples", "Task", "TaskSource", "task", "tasks"]
