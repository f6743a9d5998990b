"""Studies of alignment."""

from layerscope.alignment.aligner import options_of
from layerscope.registry import ALIGNERS
from tests.helpers.data import random_reps, two_class_task
from tests.helpers.models import shared_classifier, shared_encoder
from tests.key_table.call import ENGINE, Call

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
    for method in ALIGNERS:
        for option in options_of(method):
            given = {"options": {method: {option: METHOD_OPTIONS[option]}}}
            changes.append(({"methods": [method]}, {"methods": [method], **given}))
    return changes


OVER_TEXTS = {"source": shared_encoder(), "task": two_class_task()}
CALLS = {
    "alignment_study": Call(
        {
            "models": [shared_encoder(), shared_encoder(1)],
            "task": two_class_task(),
            "layers": [1],
            "methods": ["linear"],
            "pairs": 1,
            "train": 50,
            "test": 40,
        },
        {
            "models": [
                {"models": [shared_encoder(2), shared_encoder(1)]},
                {"models": [shared_encoder(), shared_encoder(2)]},
            ],
            "task": {"task": two_class_task(5)},
            "layers": {"layers": [2]},
            "methods": {"methods": ["mean"]},
            "pairs": {"pairs": 2},
            "representation": {"representation": "attention"},
            "target_layers": ({"layers": [1, 2]}, {"layers": [1, 2], "target_layers": "every"}),
            "pool": {"pool": "cls"},
            "train": {"train": 40},
            "max_length": {"max_length": 16},
            "seed": {"seed": 1},
            "options": _method_options(),
        },
        {"test": {"test": 20}, **ENGINE},
    ),
    "injection_study": Call(
        {
            "source": shared_classifier(),
            "target": shared_classifier(1),
            "task": two_class_task(),
            "methods": ["linear"],
            "train": 50,
        },
        {
            "source": {"source": shared_classifier(2)},
            "target": {"target": shared_classifier(2)},
            "task": {"task": two_class_task(5)},
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
        {"source": random_reps(), "true_maps": ["linear"], "noise": [0.0], "methods": ["linear"], "repeats": 1},
        {
            "source": {"source": random_reps(1)},
            "task": (OVER_TEXTS, {**OVER_TEXTS, "task": two_class_task(5)}),
            "pool": (OVER_TEXTS, {**OVER_TEXTS, "pool": "cls"}),
            "limit": (OVER_TEXTS, {**OVER_TEXTS, "limit": 40}),
            "max_length": (OVER_TEXTS, {**OVER_TEXTS, "max_length": 16}),
            "layer": {"layer": 0},
            "true_maps": {"true_maps": ["inn"]},
            "noise": {"noise": [0.1]},
            "methods": {"methods": ["mean"]},
            "repeats": {"repeats": 2},
            "seed": {"seed": 1},
            "options": _method_options(),
        },
        ENGINE,
    ),
}
