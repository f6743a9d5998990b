"""Keys: for every public function that uses the store, each parameter changes the key or does not change the result."""

from __future__ import annotations

import dataclasses
import inspect
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import zoo
from keyed import SMALL, cased, classifier, encoder, reps, rows, speaker, task, texts
from safetensors.torch import load_file

import layerscope as ls
from layerscope.alignment.methods import METHODS, options_of
from layerscope.cutting.trained_heads import HeadTraining
from layerscope.similarity.registry import measure
from layerscope.store import Store, keys_of
from layerscope.tuning.hyperparameters import Hyperparameters

pytestmark = pytest.mark.filterwarnings("ignore::layerscope.errors.LayerscopeWarning")

# The table. A change is what is given in place of the base arguments; a pair of them is a first call and a second one.
# `keyed` changes give another key, `neutral` ones are computed both ways, and what is stored must be the same: exactly,
# or (names in `rounded`) but for rounding.

HEADS = {"learning_rate": 1e-2, "batch": 4, "seed": 1, "epochs": 2}
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
ENGINE = {"engine": {"engine": "local"}}  # others are compared with it in tests/engine, and where jobs are made
HOW = {"checkpointing": {"checkpointing": True}, "report_to": {"report_to": []}}  # neutral for every training
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
}
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


def _with_option(option):
    """Two calls of `ls.compare` with an option's two values."""
    name, *values = MEASURE_OPTIONS[option]
    attention = {"baseline": False, "pool": "tokens"} if measure(name).needs == "attention" else {}
    return tuple({"measure": name, option: value, **attention} for value in values)


def _method_options():
    """Every option of every method of alignment."""
    changes = []
    for method in METHODS:
        for option in options_of(method):
            given = {"options": {method: {option: METHOD_OPTIONS[option]}}}
            changes.append(({"methods": [method]}, {"methods": [method], **given}))
    return changes


TUNED = {"mode": "tuned"}
ATTENTION = {"measure": "attention_js", "pool": "tokens", "baseline": False}
COMPARED = {
    "task": {"task": task(5)},
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


PLAN = ls.LayerPlan([1, 3])
TAUGHT = {"distill": True}
UPPER = {"strategy": "top-1", "epochs": 2}
SPEAKING = {"model": speaker(), "task": texts(), **TAUGHT}


@dataclasses.dataclass
class Call:
    base: dict[str, Any]
    keyed: dict[str, Any]
    neutral: dict[str, Any] = dataclasses.field(default_factory=dict)
    options: tuple[str, ...] = ()  # what **options may be
    rounded: tuple[str, ...] = ("batch_tokens",)


CALLS = {
    "extract": Call(
        {"model": encoder(), "task": task()},
        {
            "model": {"model": encoder(1)},
            "task": {"task": task(5)},
            "split": {"split": "test"},
            "pool": {"pool": "mean"},
            "layers": {"layers": [1]},
            "limit": {"limit": 20},
            "max_length": {"max_length": 16},
            "final_norm": {"final_norm": True},
            "subword": ({"pool": "words"}, {"pool": "words", "subword": "first"}),
            "special": ({"pool": "mean"}, {"pool": "mean", "special": True}),
            "autocast": {"autocast": "bfloat16"},
            "tokenizer": {"tokenizer": cased()},
        },
        {"batch_tokens": {"batch_tokens": 32}, "store": {"store": False}},
    ),
    "compare": Call(
        {"a": encoder(), "b": encoder(1), "task": task(), "baseline": True},
        {"a": {"a": encoder(2)}, "b": [{"b": encoder(2)}, {"b": None}], **COMPARED},
        {
            "measure": [{"measure": "svcca"}, {"measure": ["cka", "mutual_knn"]}],
            "special": (ATTENTION, {**ATTENTION, "special": True}),
            **NOT_COMPARED,
            **{option: _with_option(option) for option in MEASURE_OPTIONS},
        },
        tuple({option for name in ls.measures()["name"] for option in measure(name).options()}),
    ),
    "localization": Call(
        {"sources": [encoder(), encoder(1)], "task": task(), "baseline": True},
        {"sources": {"sources": [encoder(), encoder(2)]}, **COMPARED},
        {
            "standardize": {"standardize": True},
            "rank_tolerance": {"rank_tolerance": 1e-3},
            "allow_trivial": {"allow_trivial": True},
            "keep": {"keep": 0.5},
            "top_k": {"top_k": 2},
            **WITHOUT_INTERVAL,
        },
        (*COMPARED, *WITHOUT_INTERVAL, *measure("neuron").options(), *measure("svcca").options()),
    ),
    "specialty": Call(
        {"source": encoder(), "task": task(), "ci": 0.95},
        {
            "source": {"source": encoder(1)},
            "task": {"task": task(5)},
            "split": {"split": "test"},
            "pool": {"pool": "cls"},
            "limit": {"limit": 40},
            "max_length": {"max_length": 16},
        },
        {
            "weighting": {"weighting": "rows"},
            "ci": [{"ci": 0.9}, {"ci": None}],
            "null": {"null": 0},
            "seed": {"seed": 1},
        },
    ),
    "specialty_study": Call(
        {"models": {"one": encoder()}, "task": task()},
        {
            "models": {"models": {"one": encoder(1)}},
            "task": {"task": task(5)},
            "pools": {"pools": ["cls"]},
            "limit": {"limit": 40},
            "max_length": {"max_length": 16},
        },
        {"kind": {"kind": "head"}, **ENGINE},
    ),
    "truncation_curve": Call(
        {"model": classifier(), "task": task()},
        {
            "model": [{"model": classifier(1)}, (TUNED, {**TUNED, "model": classifier(1)})],
            "task": [{"task": task(5)}, (TUNED, {**TUNED, "task": task(5)})],
            "mode": TUNED,
            "base": [
                (TUNED, {"mode": "tunedorig", "base": encoder()}),
                ({"mode": "tunedorig", "base": encoder()}, {"mode": "tunedorig", "base": encoder(1)}),
            ],
            "split": [{"split": "test"}, (TUNED, {**TUNED, "split": "test"})],
            "limit": [{"limit": 20}, (TUNED, {**TUNED, "limit": 20})],
            "max_length": [{"max_length": 16}, (TUNED, {**TUNED, "max_length": 16})],
            "train_limit": (TUNED, {**TUNED, "train_limit": 20}),
            **{name: (TUNED, {**TUNED, name: value}) for name, value in HEADS.items()},
        },
        {
            "batch_tokens": [{"batch_tokens": 32}, (TUNED, {**TUNED, "batch_tokens": 32})],
            "all_rows": {"all_rows": True},
        },
        tuple(HeadTraining.__dataclass_fields__),
    ),
    "skip_map": Call(
        {"model": classifier(), "task": task()},
        {
            "model": {"model": classifier(1)},
            "task": {"task": task(5)},
            "max_span": {"max_span": 1},
            "split": {"split": "test"},
            "limit": {"limit": 20},
            "max_length": {"max_length": 16},
        },
        {"batch_tokens": {"batch_tokens": 32}, "all_rows": {"all_rows": True}},
    ),
    "advise": Call(
        {"model": classifier(), "task": task(), "limit": 40, "rules": "angular,last"},
        {
            "model": {"model": classifier(1)},
            "task": {"task": task(5)},
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
            "latency": ({"rules": "deepest", "blocks": 2}, {"rules": "deepest", "latency": "99%"}),
        },
        {
            "tolerance": {"tolerance": 0.5},
            "timed": {"timed": False},
            "all_rows": {"all_rows": True},
        },
    ),
    "tune": Call(
        {"model": encoder(), "task": task(), "epochs": 1, "learning_rate": 1e-2},
        {
            "model": {"model": encoder(1)},
            "task": {"task": task(5)},
            "strategy": {"strategy": "top-1"},
            "method": {"method": "lora"},
            "preset": {"preset": "wu2020"},
            "seed": {"seed": 1},
            "seeds": {"seeds": [0, 2]},
            "best": ({"strategy": "(1, l*, l*)", "best": 1}, {"strategy": "(1, l*, l*)", "best": 2}),
            "size": ({"method": "lora", "size": 2}, {"method": "lora", "size": 4}),
            "metric": {"metric": "f1"},
            **HYPERPARAMETERS,
            "cache_limit": ({"cache_dtype": "bfloat16"}, {"cache_dtype": "bfloat16", "cache_limit": 0}),
        },
        {
            "out": {"out": "copy"},
            **HOW,
            "cache_limit": ({"strategy": "top-1"}, {"strategy": "top-1", "cache_limit": 0}),
        },
        tuple(Hyperparameters.model_fields),
        ("cache_limit", "checkpointing"),
    ),
    "strategy_study": Call(
        {"model": encoder(), "task": task(), "strategies": ["full"], "seeds": [0], "epochs": 1, "learning_rate": 1e-2},
        {
            "model": {"model": encoder(1)},
            "task": {"task": task(5)},
            "strategies": {"strategies": ["top-1"]},
            "methods": {"methods": ["lora"]},
            "seeds": {"seeds": [1]},
            "best": ({"strategies": ["(1, l*, l*)"], "best": 1}, {"strategies": ["(1, l*, l*)"], "best": 2}),
            "preset": {"preset": "wu2020"},
            "metric": {"metric": "f1"},
            **HYPERPARAMETERS,
        },
        {
            **HOW,
            "cache_limit": ({"strategies": ["top-1"]}, {"strategies": ["top-1"], "cache_limit": 0}),
            **ENGINE,
        },
        tuple(Hyperparameters.model_fields),
        ("cache_limit", "checkpointing"),
    ),
    "heal": Call(
        {"model": classifier(), "plan": PLAN, "task": task(), "epochs": 1, "learning_rate": 1e-2, "max_length": 32},
        {
            "model": {"model": classifier(1)},
            "plan": [{"plan": ls.LayerPlan([1, 2])}, {"plan": None}],
            "task": {"task": task(5)},
            "method": {"method": "finetune"},
            "strategy": {"strategy": "top-1"},
            "teacher": {"teacher": classifier(1)},
            "distill": TAUGHT,
            "mix": (TAUGHT, {**TAUGHT, "mix": 0.1}),
            "distance": ({"model": encoder()}, {"model": encoder(), "distance": "mse"}),
            "keep_teacher": (SPEAKING, {**SPEAKING, "keep_teacher": 3}),
            "steps": ({"epochs": None, "steps": 3}, {"epochs": None, "steps": 4}),
            "size": {"size": 2},
            "metric": {"metric": "f1"},
            "seed": {"seed": 1},
            **HYPERPARAMETERS,
            "cache_limit": ({"cache_dtype": "bfloat16"}, {"cache_dtype": "bfloat16", "cache_limit": 0}),
        },
        {
            "out": {"out": "copy"},
            **HOW,
            "cache_limit": ({**UPPER}, {**UPPER, "cache_limit": 0}),
        },
        tuple(Hyperparameters.model_fields),
        ("cache_limit", "checkpointing"),
    ),
    "choose": Call(
        {"model": encoder(), "task": task()},
        {
            "model": {"model": encoder(1)},
            "task": {"task": task(5)},
            "limit": {"limit": 40},
            "max_length": {"max_length": 16},
        },
        {
            "probes": {"probes": False},
            "kind": {"kind": "head"},
            "null": {"null": 20},
            "seed": {"seed": 1},
        },
    ),
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


def _words(seed):
    """A folder with texts of two classes."""
    folder = Path(tempfile.mkdtemp())
    for split in ("train", "validation"):
        rows(48, seed).to_csv(folder / f"{split}.csv", index=False)
    return str(folder)


def _saved(seed):
    return str(zoo.save(Path(tempfile.mkdtemp()), "bert", seed=seed, **SMALL))


CALLS["reproduce"] = Call(
    {"paper": "ren2023", "only": "norms", "models": {"s0": _saved(0)}, "tasks": [_words(0)], "profile": "smoke"},
    {
        "paper": ({"paper": "phang2021", "only": "fig4"}, {"paper": "xie2022", "only": "table10"}),
        "only": {"only": "table3"},
        "models": {"models": {"s0": _saved(1)}},
        "tasks": {"tasks": [_words(1)]},
        "seeds": ({"paper": "phang2021", "only": "fig4"}, {"paper": "phang2021", "only": "fig4", "seeds": [1]}),
        "profile": {"profile": "offline"},
        "dtype": {"dtype": "bfloat16"},
    },
    {
        "out": {"out": "elsewhere"},
        **ENGINE,
        "gpus": {"gpus": 0.5},
        "device": {"device": "cpu"},
    },
)

# Public names that keep nothing in the store, and why not.
ROWS = "works on rows that are given"
MODULES = "opens, cuts or saves a network; nothing is computed from texts"
READS = "reads or writes the user's own files"
STREAMS = "one pass whose result is all there is to keep"
NOUN = "a value, made by the functions that are tested here"
WITHOUT = {
    **dict.fromkeys(["align", "probe", "imbalance", "scarcity", "label_cca", "mutual_information"], ROWS),
    **dict.fromkeys(["nuclear_norm", "numerical_rank", "smoothness", "agreement", "blocks", "measure"], ROWS),
    **dict.fromkeys(
        ["load", "wrap", "truncate", "skip", "cut", "cut_folder", "save", "inject", "compare_weights"], MODULES
    ),
    **dict.fromkeys(["training_cost", "strategies"], "counts parameters and operations"),
    **dict.fromkeys(["read_record", "write_record", "report", "figures", "load_aligner", "panels", "push"], READS),
    **dict.fromkeys(["stream", "attentions", "evaluate", "block_influence"], STREAMS),
    **dict.fromkeys(["families", "measures", "tasks"], "lists what there is"),
    "task": "opens data; its one artifact, the built-in pydocs, is tested in data/test_pydocs.py",
    **dict.fromkeys(["Advice", "Aligner", "Attentions", "Blocks", "Choice", "Curve", "Healing", "Injection"], NOUN),
    **dict.fromkeys(["LayerPlan", "Model", "Moments", "Record", "Replay", "Representations", "Reproduction"], NOUN),
    **dict.fromkeys(["Result", "Score"], NOUN),
    **dict.fromkeys(["Similarity", "SkipMap", "Strategy", "Task", "Training", "Trainings", "Truncation"], NOUN),
    **dict.fromkeys(["LayerscopeError", "__version__"], "no computation"),
}


def parameters(name):
    """The names of a function's parameters, with what its **options may be."""
    call, named = CALLS[name], inspect.signature(getattr(ls, name)).parameters
    several = [p.name for p in named.values() if p.kind is p.VAR_KEYWORD]
    assert bool(several) == bool(call.options), f"{name} has **options that the table does not list, or none"
    return list(dict.fromkeys([*(p for p in named if p not in several), *call.options]))


def pairs(change):
    """A change as the pairs of calls that it stands for."""
    many = change if isinstance(change, list) else [change]
    return [each if isinstance(each, tuple) else ({}, each) for each in many]


def keys(name, change):
    return keys_of(lambda: getattr(ls, name)(**{**CALLS[name].base, **change}))


def table(which):
    return [(name, parameter) for name, call in CALLS.items() for parameter in getattr(call, which)]


def test_every_public_name_is_in_one_of_the_tables():
    assert sorted([*CALLS, *WITHOUT]) == sorted(ls.__all__)


@pytest.mark.parametrize("name", CALLS)
def test_every_parameter_changes_the_key_or_is_neutral(name):
    call = CALLS[name]
    known = {*call.keyed, *call.neutral}
    assert not set(parameters(name)) - known, "no change of the key and no entry among the neutral ones"
    assert not known - set(parameters(name)), "in the table, and no parameter"


@pytest.mark.parametrize("name", CALLS)
def test_the_keys_are_told_without_computing(name, home):
    assert keys(name, {}) == keys(name, {}) != []
    assert not Store().entries()


def test_rows_that_measures_need_are_asked_for_before_anything_is_computed(home):
    asked = keys("compare", {"baseline": False, "measure": ["cka", "mutual_knn"]})
    assert asked == keys("compare", {})
    assert len(asked) == 2
    assert not Store().entries()


@pytest.mark.parametrize(("name", "parameter"), table("keyed"))
def test_another_value_is_another_key(name, parameter):
    for first, second in pairs(CALLS[name].keyed[parameter]):
        one, other = keys(name, first), keys(name, second)
        assert one
        assert other
        assert set(one) != set(other)


@pytest.mark.parametrize("name", [name for name in CALLS if "task" in CALLS[name].keyed])
def test_no_two_changes_have_one_key(name):
    """Each change is seen by itself: none stands for another."""
    seen = [frozenset(keys(name, second)) for change in CALLS[name].keyed.values() for _, second in pairs(change)]
    assert len(set(seen)) == len(seen)


# What neutral parameters leave as it is.

# What a training says of how it went, which is not its result.
ASIDE = ("seconds", "epoch_seconds", "seconds_per_epoch", "cached", "cache_limit", "checkpointing", "report_to")
_KEPT: dict[str, dict[str, Any]] = {}


def kept(name, change, tmp_path_factory, monkeypatch):
    """Everything that a call keeps in a fresh store: kind and key -> file -> content."""
    at = f"{name} {change}"
    if at not in _KEPT:
        home = tmp_path_factory.mktemp("fresh")
        monkeypatch.setenv("LAYERSCOPE_HOME", str(home))
        monkeypatch.chdir(home)
        getattr(ls, name)(**{**CALLS[name].base, **change})
        _KEPT[at] = {f"{e.kind} {e.key}": files(e.path) for e in Store().entries()}
    return _KEPT[at]


def files(folder: Path) -> dict[str, Any]:
    found = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.suffix == ".safetensors":
            found[name] = load_file(path)
        elif path.suffix == ".json" and path.name != "artifact.json":
            found[name] = _result(json.loads(path.read_text(encoding="utf-8")))
    return found


def _result(value):
    if isinstance(value, dict):
        return {k: _result(v) for k, v in value.items() if k not in ASIDE}
    return value


def assert_same(one, other, tolerance):
    assert one.keys() == other.keys()
    for name, content in one.items():
        if isinstance(content, dict) and content and all(isinstance(v, torch.Tensor) for v in content.values()):
            assert content.keys() == other[name].keys()
            for part, tensor in content.items():
                torch.testing.assert_close(other[name][part], tensor, rtol=tolerance, atol=tolerance)
        else:
            assert other[name] == content, name


@pytest.mark.parametrize(("name", "parameter"), table("neutral"))
def test_a_neutral_parameter_leaves_what_is_kept_as_it_is(name, parameter, tmp_path_factory, monkeypatch):
    call = CALLS[name]
    tolerance = 1e-4 if parameter in call.rounded else 0.0
    for first, second in pairs(call.neutral[parameter]):
        one, other = (kept(name, change, tmp_path_factory, monkeypatch) for change in (first, second))
        assert set(keys(name, second)) in (set(keys(name, first)), set())
        for key in one.keys() & other.keys():
            assert_same(one[key], other[key], tolerance)
        if keys(name, second):
            assert one.keys() & other.keys()


# The two stale answers.


def test_a_training_is_not_scored_by_the_metric_of_another():
    base = CALLS["tune"].base
    found = {metric: ls.tune(**base, metric=metric) for metric in ("accuracy", "f1", None)}
    assert [found[m].metric for m in found] == ["accuracy", "f1", "accuracy"]
    assert found["accuracy"].path == found[None].path != found["f1"].path
    for metric in ("accuracy", "f1"):
        score = ls.evaluate(found[metric].model, task(), metric=metric, max_length=128)
        assert found[metric].score == pytest.approx(float(score))


def test_a_curve_of_trained_heads_has_the_values_of_its_metric():
    values = {}
    for metric in ("accuracy", "f1"):
        frame = ls.truncation_curve(classifier(), task(metric=metric), mode="tuned", epochs=1).frame
        assert set(frame["metric"]) == {metric}
        values[metric] = frame["score"].to_numpy()
    assert not np.allclose(values["accuracy"], values["f1"])
    again = ls.truncation_curve(classifier(), task(metric="accuracy"), mode="tuned", epochs=1).frame
    assert np.array_equal(again["score"], values["accuracy"])
