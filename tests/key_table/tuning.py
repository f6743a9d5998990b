"""Training: under a strategy, in studies, to heal a cut; and choosing a strategy."""

import layerscope as ls
from tests.helpers.data import two_class_task, unlabelled_task
from tests.helpers.models import shared_classifier, shared_encoder, shared_masked
from tests.key_table.call import ENGINE, Call

HYPERPARAMETERS = {
    "learning_rate": {"learning_rate": 1e-3},
    "epochs": {"epochs": 2},
    "max_steps": ({"epochs": None, "max_steps": 2}, {"epochs": None, "max_steps": 1}),
    "batch": {"batch": 4},
    "accumulate": {"accumulate": 2},
    "warmup": {"warmup": 0.5},
    "schedule": {"schedule": "constant"},
    "weight_decay": {"weight_decay": 0.1},
    "adam_epsilon": {"adam_epsilon": 1e-6},
    "max_length": {"max_length": 16},
    "bf16": {"bf16": True},
    "evaluate_every": {"evaluate_every": 2},
    "patience": {"patience": 1},
    "cache": {"cache": False},
    "cache_dtype": {"cache_dtype": "bfloat16"},
    "train_limit": {"train_limit": 20},
    "validation_limit": {"validation_limit": 20},
}
HOW = {"checkpointing": {"checkpointing": True}, "report_to": {"report_to": []}}  # neutral for every training
PLAN = ls.LayerPlan([1, 3])
TAUGHT = {"distill": True}
PATCHED = {"patch": two_class_task(3)}
UPPER = {"strategy": "top-1", "epochs": 2}
SPEAKING = {"model": shared_masked(), "task": unlabelled_task(), **TAUGHT}
CALLS = {
    "tune": Call(
        {"model": shared_encoder(), "task": two_class_task(), "epochs": 1, "learning_rate": 1e-2},
        {
            "model": {"model": shared_encoder(1)},
            "task": {"task": two_class_task(5)},
            "strategy": {"strategy": "top-1"},
            "method": {"method": "lora"},
            "preset": {"preset": "wu2020"},
            "seed": {"seed": 1},
            "seeds": {"seeds": [0, 2]},
            "specialty_layer": (
                {"strategy": "(1, l*, l*)", "specialty_layer": 1},
                {"strategy": "(1, l*, l*)", "specialty_layer": 2},
            ),
            "size": ({"method": "lora", "size": 2}, {"method": "lora", "size": 4}),
            "metric": {"metric": "f1"},
            **HYPERPARAMETERS,
            "cache_limit": ({"cache_dtype": "bfloat16"}, {"cache_dtype": "bfloat16", "cache_limit": 0}),
        },
        {
            "out": {"out": "copy"},
            **ENGINE,
            **HOW,
            "cache_limit": ({"strategy": "top-1"}, {"strategy": "top-1", "cache_limit": 0}),
        },
        (),
        ("cache_limit", "checkpointing"),
    ),
    "strategy_study": Call(
        {
            "model": shared_encoder(),
            "task": two_class_task(),
            "strategies": ["full"],
            "seeds": [0],
            "epochs": 1,
            "learning_rate": 1e-2,
        },
        {
            "model": {"model": shared_encoder(1)},
            "task": {"task": two_class_task(5)},
            "strategies": {"strategies": ["top-1"]},
            "methods": {"methods": ["lora"]},
            "seeds": {"seeds": [1]},
            "specialty_layer": (
                {"strategies": ["(1, l*, l*)"], "specialty_layer": 1},
                {"strategies": ["(1, l*, l*)"], "specialty_layer": 2},
            ),
            "preset": {"preset": "wu2020"},
            "metric": {"metric": "f1"},
            **HYPERPARAMETERS,
        },
        {
            **HOW,
            "cache_limit": ({"strategies": ["top-1"]}, {"strategies": ["top-1"], "cache_limit": 0}),
            **ENGINE,
        },
        (),
        ("cache_limit", "checkpointing"),
    ),
    "heal": Call(
        {
            "model": shared_classifier(),
            "plan": PLAN,
            "task": two_class_task(),
            "epochs": 1,
            "learning_rate": 1e-2,
            "max_length": 32,
        },
        {
            "model": {"model": shared_classifier(1)},
            "plan": [{"plan": ls.LayerPlan([1, 2])}, {"plan": None}],
            "task": {"task": two_class_task(5)},
            "method": [{"method": "finetune"}, {"method": "patch", "epochs": None, "learning_rate": None}],
            "patch": [PATCHED, (PATCHED, {"patch": two_class_task(5)})],
            "other": (PATCHED, {**PATCHED, "other": two_class_task(5)}),
            "strategy": {"strategy": "top-1"},
            "teacher": {"teacher": shared_classifier(1)},
            "distill": TAUGHT,
            "mix": (TAUGHT, {**TAUGHT, "mix": 0.1}),
            "distance": ({"model": shared_encoder()}, {"model": shared_encoder(), "distance": "mse"}),
            "keep_teacher": (SPEAKING, {**SPEAKING, "keep_teacher": 3}),
            "steps": ({"epochs": None, "steps": 3}, {"epochs": None, "steps": 4}),
            "size": {"size": 2},
            "metric": {"metric": "f1"},
            "seed": {"seed": 1},
            **{name: change for name, change in HYPERPARAMETERS.items() if name != "max_steps"},  # it is `steps`
            "cache_limit": ({"cache_dtype": "bfloat16"}, {"cache_dtype": "bfloat16", "cache_limit": 0}),
        },
        {
            "out": {"out": "copy"},
            **HOW,
            "cache_limit": ({**UPPER}, {**UPPER, "cache_limit": 0}),
        },
        (),
        ("cache_limit", "checkpointing"),
    ),
    "recommend": Call(
        {"model": shared_encoder(), "task": two_class_task()},
        {
            "model": {"model": shared_encoder(1)},
            "task": {"task": two_class_task(5)},
            "limit": {"limit": 40},
            "max_length": {"max_length": 16},
        },
        {
            "pools": {"pools": ["cls"]},  # these add experiments beside the recommendation
            "tuned": {"tuned": shared_encoder(1)},
            "probes": {"probes": False},
            "probe": {"probe": "head"},
            "null": {"null": 20},
            "seed": {"seed": 1},
            "measures": {"measures": ["numerical_rank"]},
            "imbalance": {"imbalance": [0.5]},
            "imbalance_size": ({"imbalance": [0.5]}, {"imbalance": [0.5], "imbalance_size": 20}),
            "scarcity": {"scarcity": [20]},
            **ENGINE,
        },
    ),
}
