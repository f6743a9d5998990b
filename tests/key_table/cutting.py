"""Cutting: the curve, the map, and advice."""

from tests.helpers.data import two_class_task
from tests.helpers.models import shared_classifier, shared_encoder
from tests.key_table.call import Call

HEADS = {"learning_rate": 1e-2, "batch": 4, "seed": 1, "epochs": 2}
TUNED = {"mode": "tuned"}
PATCHED = {"mode": "patched", "texts": two_class_task(3)}
CALLS = {
    "truncation_curve": Call(
        {"model": shared_classifier(), "task": two_class_task()},
        {
            "model": [{"model": shared_classifier(1)}, (TUNED, {**TUNED, "model": shared_classifier(1)})],
            "task": [{"task": two_class_task(5)}, (TUNED, {**TUNED, "task": two_class_task(5)})],
            "mode": TUNED,
            "base": [
                (TUNED, {"mode": "tunedorig", "base": shared_encoder()}),
                ({"mode": "tunedorig", "base": shared_encoder()}, {"mode": "tunedorig", "base": shared_encoder(1)}),
            ],
            "split": [{"split": "test"}, (TUNED, {**TUNED, "split": "test"})],
            "limit": [{"limit": 20}, (TUNED, {**TUNED, "limit": 20})],
            "max_length": [{"max_length": 16}, (TUNED, {**TUNED, "max_length": 16})],
            "train_limit": (TUNED, {**TUNED, "train_limit": 20}),
            "texts": [(PATCHED, {**PATCHED, "texts": two_class_task(7)}), (PATCHED, {"mode": "patched"})],
            "other": [(PATCHED, {**PATCHED, "other": two_class_task(9)})],
            **{name: (TUNED, {**TUNED, name: value}) for name, value in HEADS.items()},
            "max_steps": (TUNED, {**TUNED, "max_steps": 3}),
            "warmup": (TUNED, {**TUNED, "warmup": 2}),
        },
        {
            "batch_tokens": [{"batch_tokens": 32}, (TUNED, {**TUNED, "batch_tokens": 32})],
            "all_rows": {"all_rows": True},
        },
    ),
    "skip_map": Call(
        {"model": shared_classifier(), "task": two_class_task()},
        {
            "model": {"model": shared_classifier(1)},
            "task": {"task": two_class_task(5)},
            "max_span": {"max_span": 1},
            "split": {"split": "test"},
            "limit": {"limit": 20},
            "max_length": {"max_length": 16},
        },
        {"batch_tokens": {"batch_tokens": 32}, "all_rows": {"all_rows": True}},
    ),
    "advise": Call(
        {"model": shared_classifier(), "task": two_class_task(), "limit": 40, "rules": "angular,last"},
        {
            "model": {"model": shared_classifier(1)},
            "task": {"task": two_class_task(5)},
            "split": {"split": "test"},
            "limit": {"limit": 30},
            "max_length": {"max_length": 16},
            "confidence": {"confidence": 0},  # which rows choose
            "seed": {"seed": 1},
            "rules": [{"rules": "last"}, ({"rules": "last"}, {"rules": "spans"})],
            "max_span": ({"rules": "spans"}, {"rules": "spans", "max_span": 1}),
            "evaluations": ({"rules": "greedy"}, {"rules": "greedy", "evaluations": 0}),
            "remove": ({"rules": "last"}, {"rules": "last", "remove": 1}),
            "blocks": ({"rules": "last"}, {"rules": "last", "blocks": 1}),
            "parameters": ({"rules": "random", "blocks": 2}, {"rules": "random", "parameters": "99%"}),
            "other": [
                (
                    {"rules": "last", "patch": two_class_task(3)},
                    {"rules": "last", "patch": two_class_task(3), "other": two_class_task(9)},
                ),
            ],
            "patch": [
                ({"rules": "last"}, {"rules": "last", "patch": two_class_task(3)}),
                ({"rules": "last", "patch": two_class_task(3)}, {"rules": "last", "patch": two_class_task(7)}),
            ],
            "latency": ({"rules": "deepest", "blocks": 2}, {"rules": "deepest", "latency": "99%"}),
        },
        {
            "tolerance": {"tolerance": 0.5},
            "timed": {"timed": False},
            "all_rows": {"all_rows": True},
        },
    ),
}
