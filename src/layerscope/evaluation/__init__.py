"""A network's answers on a task and their score; heads on any layer."""
