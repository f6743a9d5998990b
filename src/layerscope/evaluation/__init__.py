"""Evaluation: a network's answers on a task and their score, and heads that are trained on any layer."""
