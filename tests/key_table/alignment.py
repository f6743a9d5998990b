"""Studies of alignment."""

from keyed import classifier, encoder, reps, task

from key_table.call import ENGINE, Call
from layerscope.alignment.methods import METHODS, options_of

METHOD_OPTIONS = {
    "ridge": 0.1,
    "pad": True,
    "couplings": 2,
    "hidden": 8,
    "clamp": 1.0,
    "steps": 20,
    "batch": 10,
    "learning_rate": 1e-2,
    "weight_decay": 0.1,
    "patience": 1,
    "start": "plain",
    "strength": 0.1,
    "scale": False,
    "keep": 0.5,
}


def _method_options():
    """Every option of every method of alignment."""
    changes = []
    for method in METHODS:
        for option in options_of(method):
            given = {"options": {method: {option: METHOD_OPTIONS[option]}}}
            changes.append(({"methods": [method]}, {"methods": [method], **given}))
    return changes


CALLS = {
    "alignment_study": Call(
        {
            "models": [encoder(), encoder(1)],
            "task": task(),
            "layers": [1],
            "methods": ["linear"],
            "pairs": 1,
            "train": 50,
            "test": 40,
        },
        {
            "models": [{"models": [encoder(2), encoder(1)]}, {"models": [encoder(), encoder(2)]}],
            "task": {"task": task(5)},
            "layers": {"layers": [2]},
            "methods": {"methods": ["mean"]},
            "pairs": {"pairs": 2},
            "of": {"of": "attention"},
            "against": ({"layers": [1, 2]}, {"layers": [1, 2], "against": "every"}),
            "pool": {"pool": "cls"},
            "train": {"train": 40},
            "max_length": {"max_length": 16},
            "seed": {"seed": 1},
            "options": _method_options(),
        },
        {"test": {"test": 20}, **ENGINE},
    ),
    "injection_study": Call(
        {"source": classifier(), "target": classifier(1), "task": task(), "methods": ["linear"], "train": 50},
        {
            "source": {"source": classifier(2)},
            "target": {"target": classifier(2)},
            "task": {"task": task(5)},
            "layers": {"layers": [1]},
            "methods": {"methods": ["mean"]},
            "train": {"train": 40},
            "max_length": {"max_length": 16},
            "seed": {"seed": 1},
            "options": _method_options(),
        },
        {"split": {"split": "test"}, "limit": {"limit": 20}, "all_rows": {"all_rows": True}, **ENGINE},
    ),
    "synthetic_study": Call(
        {"reps": reps(), "truths": ["linear"], "noise": [0.0], "methods": ["linear"], "repeats": 1},
        {
            "reps": {"reps": reps(1)},
            "layer": {"layer": 0},
            "truths": {"truths": ["inn"]},
            "noise": {"noise": [0.1]},
            "methods": {"methods": ["mean"]},
            "repeats": {"repeats": 2},
            "seed": {"seed": 1},
            "options": _method_options(),
        },
        ENGINE,
    ),
}
