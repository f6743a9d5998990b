"""What goes in: tasks, corpora, files."""

from layerscope.data.examples import Examples
from layerscope.data.registry import tasks
from layerscope.data.task import Task, task

__all__ = ["Examples", "Task", "task", "tasks"]
