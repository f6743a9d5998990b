"""The Python reference: every name of `layerscope.__all__`, found in its file without importing anything."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

PAGE = "reference/api.md"
SOURCE = Path(__file__).parent.parent.parent / "src"
INTRODUCTION = """# Python

`import layerscope as ls` gives these names and nothing else. Each is imported when it is first used.
Layers are 0..L, blocks 1..L, ranges inclusive: see the [glossary](../glossary.md).
"""
# What belongs together, in the order of the four questions. A name that is missing here stops the build.
GROUPS = {
    "Models and data": [
        *("load", "wrap", "Model", "describe", "Description", "families", "Replay", "task", "tasks", "Task", "perturb"),
    ],
    "Representations": ["extract", "Representations", "stream", "attentions", "Attentions"],
    "Compare": [
        *("compare", "Similarity", "measures", "measure", "Moments", "panels", "compare_weights"),
        *("localization", "block_influence", "layer_blocks", "Blocks", "measure_trial", "MeasureTrial"),
    ],
    "Cut": [
        *("evaluate", "Score", "truncation_curve", "Truncation", "skip_map", "SkipMap", "advise", "Advice"),
        *("truncate", "skip", "cut", "cut_folder", "LayerPlan", "cut_study", "CutStudy", "save", "push"),
        *("heal", "Healing"),
    ],
    "Tune": [
        *("layer_scores", "LayerScores", "specialty", "probe", "agreement", "smoothness", "recommend", "Choice"),
        *("rank", "Ranking"),
        *("label_cca", "mutual_information", "numerical_rank", "nuclear_norm", "imbalance_study", "scarcity_study"),
        *("specialty_study", "Strategy", "strategies", "training_cost"),
        *("tune", "Training", "Trainings", "strategy_study", "tuning_changes", "TuningChanges"),
    ],
    "Align": [
        *("align", "Aligner", "load_aligner", "alignment_study", "synthetic_study", "inject", "Injection"),
        "injection_study",
    ],
    "Study": ["study", "ModelStudy"],
    "Reproduce": ["reproduce", "Reproduction", "experiments"],
    "Results and records": ["Result", "Curve", "Record", "read_record", "write_record", "report", "paper_figures"],
    "Errors and version": ["LayerscopeError", "__version__"],
}


def on_files(files: Any, config: Any) -> Any:
    from mkdocs.structure.files import File

    files.append(File.generated(config, PAGE, content=reference()))
    return files


def reference() -> str:
    """The whole page."""
    homes = places()
    listed = [name for names in GROUPS.values() for name in names]
    if wrong := set(listed) ^ set(homes):
        raise ValueError(f"docs/hooks/api.py and layerscope.__all__ do not agree on {', '.join(sorted(wrong))}")
    parts = [INTRODUCTION]
    for group, names in GROUPS.items():
        parts.append(f"## {group}")
        parts += [_entry(name, homes[name]) for name in names]
    return "\n\n".join(parts) + "\n"


def _entry(name: str, home: str) -> str:
    shown = f"ls.{name}"
    if name == "__version__":  # a string has no docstring
        return f'<h3 id="{shown}">{shown}</h3>\n\nThe version, as a string.'
    options = f"    options:\n      heading: {shown}\n      toc_label: {shown}"
    return f"[](){{#{shown}}}\n\n::: {home}\n{options}"


def places() -> dict[str, str]:
    """Each public name with the path of its definition, such as layerscope.similarity.compare.compare."""
    tree = ast.parse((SOURCE / "layerscope/__init__.pyi").read_text(encoding="utf-8"))
    return {
        alias.name: f"{node.module}.{alias.name}"
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
