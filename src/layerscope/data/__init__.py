"""What goes in: tasks, corpora, files."""

from layerscope.data.examples import Examples
from layerscope.data.opening import task
from layerscope.data.registry import tasks
from layerscope.data.task import Task

__all__ = ["Examples", "Task", "task", "tasks"]
