"""The table of all public functions that use the store: what each of their parameters does to the key.

A change is what is given in place of the base arguments; a pair of them is a first call and a second one. `keyed`
changes give another key, `neutral` ones are computed both ways, and what is stored must be the same: exactly, or (names
in `rounded`) except for rounding.
"""

import layerscope as ls
from layerscope.store import keys_of
from tests.key_table import alignment, cutting, layers, recipes, tuning
from tests.key_table.call import pairs

__all__ = ["CALLS", "WITHOUT", "changes", "keys", "pairs"]

CALLS = {**layers.CALLS, **cutting.CALLS, **tuning.CALLS, **alignment.CALLS, **recipes.CALLS}

# Public names that keep nothing in the store, and why not.
ROWS = "works on rows that are given"
MODULES = "opens, cuts or saves a network; nothing is computed from texts"
READS = "reads or writes the user's own files"
STREAMS = "one pass whose result is all there is to keep"
NOUN = "a value, made by the functions that are tested here"
WITHOUT = {
    **dict.fromkeys(["align", "probe", "imbalance_study", "scarcity_study", "label_cca", "mutual_information"], ROWS),
    **dict.fromkeys(["nuclear_norm", "numerical_rank", "smoothness", "agreement", "layer_blocks", "measure"], ROWS),
    **dict.fromkeys(
        ["load", "wrap", "truncate", "skip", "cut", "cut_folder", "save", "inject", "compare_weights", "describe"],
        MODULES,
    ),
    "describe": MODULES,
    **dict.fromkeys(["training_cost", "strategies"], "counts parameters and operations"),
    **dict.fromkeys(
        ["read_record", "write_record", "report", "paper_figures", "load_aligner", "panels", "push"], READS
    ),
    **dict.fromkeys(["stream", "attentions", "evaluate", "block_influence", "cut_study"], STREAMS),
    **dict.fromkeys(["families", "measures", "tasks", "experiments"], "lists what there is"),
    "tuning_changes": "sets the results of four functions side by side",
    "study": "its parts have keys of their own, which recipes/test_study.py changes",
    "perturb": "opens data, which is changed as it is read",
    "task": "opens data; its one artifact, the built-in pydocs, is tested in data/test_pydocs.py",
    **dict.fromkeys(
        [
            "Advice",
            "Aligner",
            "Attentions",
            "Blocks",
            "Choice",
            "CutStudy",
            "Curve",
            "Description",
            "Healing",
            "Injection",
        ],
        NOUN,
    ),
    **dict.fromkeys(["LayerPlan", "Model", "Moments", "Record", "Replay", "Representations", "Reproduction"], NOUN),
    **dict.fromkeys(["ModelStudy", "TuningChanges"], NOUN),
    **dict.fromkeys(["LayerScores", "MeasureTrial", "Ranking", "Result", "Score"], NOUN),
    **dict.fromkeys(["Similarity", "SkipMap", "Strategy", "Task", "Training", "Trainings", "Truncation"], NOUN),
    **dict.fromkeys(["LayerscopeError", "__version__"], "no computation"),
}


def keys(name, change):
    """The keys that a call of a function asks for, its base arguments changed."""
    return keys_of(lambda: getattr(ls, name)(**{**CALLS[name].base, **change}))


def changes(which):
    """Every function with every parameter that it has of a sort, `keyed` or `neutral`."""
    return [(name, parameter) for name, call in CALLS.items() for parameter in getattr(call, which)]
