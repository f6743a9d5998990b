"""Looking at layers: their rows, their similarity, and what labels can be read from them."""

import layerscope as ls
from layerscope.similarity.registry import measure
from tests.helpers.data import two_class_task
from tests.helpers.models import cased_tokenizer, shared_encoder
from tests.key_table.call import ENGINE, Call

MEASURE_OPTIONS = {  # an option, a measure that has it, and two values
    "standardize": ("cka", False, True),
    "rank_tolerance": ("cca", 1e-7, 1e-3),
    "allow_trivial": ("cca", False, True),
    "keep": ("svcca", 0.99, 0.5),
    "weights": ("pwcca", "x", "y"),
    "top_k": ("neuron", 1, 2),
    "causal": ("attention_js", False, True),
    "bandwidth": ("cka_rbf", 1.0, 0.5),
    "distance": ("rsa", "correlation", "euclidean"),
    "correlation": ("rsa", "spearman", "pearson"),
    "k": ("mutual_knn", 5, 3),
    "batch": ("cka_minibatch", 20, 10),
    "shuffle": ("cka_minibatch", 0, 1),
    "ridge": ("gulp", 0.0, 1.0),
    "norm": ("rsm_norm_difference", "frobenius", "spectral"),
    "distances": ("second_order_cosine", False, True),
    "t": ("uniformity_difference", 2.0, 1.0),
}
ATTENTION = {"measure": "attention_js", "pool": "tokens", "baseline": False}
COMPARED = {
    "task": {"task": two_class_task(5)},
    "split": {"split": "test"},
    "pool": {"pool": "mean"},
    "limit": {"limit": 20},
    "max_length": {"max_length": 16},
    "final_norm": {"final_norm": True},
}
NOT_COMPARED = {
    "names": {"names": ["one", "two"]},
    "ci": {"ci": 0.9},
    "baseline": {"baseline": False},
    "seed": {"seed": 1},
    "memory": {"memory": 1.0},
}
WITHOUT_INTERVAL = {name: change for name, change in NOT_COMPARED.items() if name != "ci"}


def _with_option(option):
    """Two calls of `ls.compare` with an option's two values."""
    name, *values = MEASURE_OPTIONS[option]
    attention = {"baseline": False, "pool": "tokens"} if measure(name).needs == "attention" else {}
    return tuple({"measure": name, option: value, **attention} for value in values)


CALLS = {
    "extract": Call(
        {"model": shared_encoder(), "task": two_class_task()},
        {
            "model": {"model": shared_encoder(1)},
            "task": {"task": two_class_task(5)},
            "split": {"split": "test"},
            "pool": {"pool": "mean"},
            "layers": {"layers": [1]},
            "limit": {"limit": 20},
            "max_length": {"max_length": 16},
            "final_norm": {"final_norm": True},
            "subword": ({"pool": "words"}, {"pool": "words", "subword": "first"}),
            "special": ({"pool": "mean"}, {"pool": "mean", "special": True}),
            "autocast": {"autocast": "bfloat16"},
            "tokenizer": {"tokenizer": cased_tokenizer()},
        },
        {"batch_tokens": {"batch_tokens": 32}, "store": {"store": False}},
    ),
    "compare": Call(
        {"a": shared_encoder(), "b": shared_encoder(1), "task": two_class_task(), "baseline": True},
        {"a": {"a": shared_encoder(2)}, "b": [{"b": shared_encoder(2)}, {"b": None}], **COMPARED},
        {
            "measure": [{"measure": "svcca"}, {"measure": ["cka", "mutual_knn"]}],
            "special": (ATTENTION, {**ATTENTION, "special": True}),
            **NOT_COMPARED,
            **{option: _with_option(option) for option in MEASURE_OPTIONS},
        },
        tuple({option for name in ls.measures()["name"] for option in measure(name).options()}),
    ),
    "measure_trial": Call(
        {
            "models": [shared_encoder(), shared_encoder(1)],
            "task": two_class_task(),
            "test": "layers",
            "measures": ["cka"],
        },
        {
            "models": {"models": [shared_encoder(2), shared_encoder(1)]},  # they are read one after the other
            "task": {"task": two_class_task(5)},
            "test": {"test": "groups", "models": {n: [shared_encoder(), shared_encoder(1)] for n in "ab"}},
            "split": {"split": "test"},
            "pool": {"pool": "mean"},
            "layer": (
                {"test": "groups", "models": {n: [shared_encoder(), shared_encoder(1)] for n in "ab"}},
                {"test": "groups", "models": {n: [shared_encoder(), shared_encoder(1)] for n in "ab"}, "layer": 1},
            ),
            "limit": {"limit": 20},
            "max_length": {"max_length": 16},
        },
        {"measures": {"measures": ["procrustes"]}, "ci": {"ci": None}},
    ),
    "localization": Call(
        {"models": [shared_encoder(), shared_encoder(1)], "task": two_class_task(), "baseline": True},
        {"models": {"models": [shared_encoder(), shared_encoder(2)]}, **COMPARED, "pool": {"pool": "cls"}},
        {
            "standardize": {"standardize": True},
            "rank_tolerance": {"rank_tolerance": 1e-3},
            "allow_trivial": {"allow_trivial": True},
            "keep": {"keep": 0.5},
            "top_k": {"top_k": 2},
            **WITHOUT_INTERVAL,
        },
        (),
    ),
    "specialty": Call(
        {"source": shared_encoder(), "task": two_class_task(), "ci": 0.95},
        {
            "source": {"source": shared_encoder(1)},
            "task": {"task": two_class_task(5)},
            "split": {"split": "test"},
            "pool": {"pool": "cls"},
            "limit": {"limit": 40},
            "max_length": {"max_length": 16},
        },
        {
            "weighting": {"weighting": "rows"},
            "ci": [{"ci": 0.9}, {"ci": None}],
            "null": {"null": 0},
            "press": {"press": False},
            "seed": {"seed": 1},
        },
    ),
    "layer_scores": Call(
        {"source": shared_encoder(), "scores": ["press"], "task": two_class_task()},
        {
            "source": {"source": shared_encoder(1)},
            "task": {"task": two_class_task(5)},
            "split": {"split": "test"},
            "pool": {"pool": "cls"},
            "limit": {"limit": 40},
            "max_length": {"max_length": 16},
        },
        {
            "scores": {"scores": ["press", "nu"]},
            "keep": {"keep": False},
            "ci": {"ci": None},
            "null": {"null": 0},
            "seed": {"seed": 1},
        },
    ),
    "rank": Call(
        {"models": [shared_encoder()], "task": two_class_task(), "timed": False},
        {
            "models": {"models": [shared_encoder(1)]},
            "task": {"task": two_class_task(5)},
            "split": {"split": "test"},
            "pool": {"pool": "cls"},
            "limit": {"limit": 40},
            "max_length": {"max_length": 16},
        },
        {
            "null": {"null": 0},
            "timed": {"timed": True},
            "seed": {"seed": 1},
        },
    ),
    "specialty_study": Call(
        {"models": {"one": shared_encoder()}, "task": two_class_task()},
        {
            "models": {"models": {"one": shared_encoder(1)}},
            "task": {"task": two_class_task(5)},
            "pools": {"pools": ["cls"]},
            "limit": {"limit": 40},
            "max_length": {"max_length": 16},
        },
        {"kind": {"kind": "head"}, **ENGINE},
    ),
}
