"""Every public function says in a sentence which of its arguments is of a type that it does not take."""

import inspect
import math
import pickle
from pathlib import Path

import numpy as np
import pandas
import pytest
import torch

import layerscope as ls
from layerscope.arguments import checked
from layerscope.cli.signature import function
from layerscope.errors import InputError
from tests.helpers.data import random_reps

FUNCTIONS = sorted(name for name in ls.__all__ if inspect.isfunction(getattr(ls, name)))
WRONG = [object(), (b"bytes",), math.inf, math.nan, 3, 3.5, "a text"]
TAKES = {"int": [3], "float": [3, 3.5, math.inf, math.nan], "str": ["a text"]}  # of those, by annotation
# Names that stand for other types; those on the left take anything.
ANYTHING = {"Any", "ModelSource", "TaskSource", "Array", "Texts"}
ALIASES = {"Names": "str", "Models": "str", "Asked": "str", "Output": "str"}


def fits(types):
    """Something of the first of these types."""
    first = min(ALIASES.get(name, name) for name in types)
    plain = {"int": 3, "float": 0.5, "str": "a text", "bool": True, "Path": Path("a"), "nn.Module": torch.nn.Identity()}
    if types & ANYTHING or "[" in first:
        return {} if first.startswith("Mapping") else []
    return plain[first] if first in plain else type(first, (), {})()


def parameters():
    for name in FUNCTIONS:
        for parameter in function(name).parameters.values():
            if not parameter.types & ANYTHING:
                yield name, parameter.name


@pytest.mark.parametrize(("name", "wrong"), list(parameters()))
def test_every_argument_of_a_wrong_type_is_named(name, wrong):
    """The check comes before anything else, so that what else is given need not make sense."""
    spelled = function(name).parameters
    types = {ALIASES.get(each, each) for each in spelled[wrong].types}
    others = {each: fits(p.types) for each, p in spelled.items() if p.default is None and each != wrong}
    taken = [value for each in types for value in TAKES.get(each, [])]
    taken += WRONG[1:2] if "Sequence[ModelSource]" in types else []
    values = [value for value in WRONG if not any(value is other for other in taken)]
    assert len(values) >= 2
    for value in values:
        with pytest.raises(InputError, match=rf"^{wrong} is .*; it must be "):
            getattr(ls, name)(**others, **{wrong: value})


def test_the_sentence_names_the_argument_what_it_is_and_what_is_allowed(tmp_path):
    cases = [
        (
            lambda: ls.heal("garden:bert-s0", None, "pydocs", steps=math.inf),
            r"^steps is inf; it must be a whole number",
        ),
        (lambda: ls.extract("garden:bert-s0", "pydocs", split=3), r"^split is 3; it must be a text or None\.$"),
        (lambda: ls.task("pydocs", text=1), r"^text is 1; it must be a text or None\.$"),
        (lambda: ls.compare("garden:bert-s0", measure=0), r"^measure is 0; it must be a text or a list of texts\.$"),
        (lambda: ls.compare("garden:bert-s0", measure=["cka", 0]), r"^measure is \['cka', 0\]; it must be a text"),
        (
            lambda: ls.extract("garden:bert-s0", "pydocs", limit=True),
            "^limit is True; it must be a whole number or None",
        ),
        (lambda: ls.smoothness([1.0]), r"^curve is \[1\.0\]; it must be a Curve\.$"),
        (lambda: ls.cut_folder(tmp_path, "first 3", tmp_path), "^plan is 'first 3'; it must be a LayerPlan"),
        (lambda: ls.load_aligner(object()), r"^path is an object; it must be a text or a path\.$"),
    ]
    for call, sentence in cases:
        with pytest.raises(InputError, match=sentence):
            call()


def test_what_numpy_and_others_make_is_taken():
    seen = []

    def public(
        count: int,
        share: float = 0.0,
        on: bool = True,
        names: "str | Sequence[str] | None" = None,  # noqa: F821  (as the source spells it)
        layers: "Sequence[int] | None" = None,  # noqa: F821
        path: "str | Path | None" = None,
    ):
        seen.append(count)

    public.__annotations__ |= {name: getattr(kind, "__name__", kind) for name, kind in public.__annotations__.items()}
    call = checked(public)
    call(np.int64(3), np.float32(0.5), np.bool_(True), np.array(["a"]), np.arange(3), Path("a"))
    call(3, 1, 1, ("a", np.str_("b")), range(3), "a")
    call(3, names="a", layers=[np.int32(1)])
    call(3, layers=(k for k in range(3)))
    assert len(seen) == 4
    for given in ({"count": 3.0}, {"count": True}, {"count": 3, "names": b"a"}, {"count": 3, "layers": [1, "a"]}):
        with pytest.raises(InputError):
            call(**given)
    with pytest.raises(TypeError, match="unexpected keyword argument 'other'"):
        call(3, other=1)


def test_several_things_are_judged_one_by_one_whatever_holds_them():
    seen = []

    def public(shares: "Sequence[float] | None" = None, named: "Mapping[str, int] | None" = None):  # noqa: F821
        seen.append(shares)

    call = checked(public)
    for given in (np.array([0.5, 1]), torch.tensor([0.5, 1.0]), pandas.Series([0.5, 1]), pandas.Index([0.5, 1])):
        call(given)
        assert seen[-1] == [0.5, 1]  # a list, so that `shares or ()` has a meaning
        assert type(seen[-1]) is list
    call({0.5})
    call(np.array([]))
    wrong = [np.zeros((2, 2)), np.array(["a"]), np.array(3.0), torch.zeros(2, 2), pandas.DataFrame(), {"a"}]
    for given in [*wrong, ls.Representations.from_arrays([np.eye(4)])]:
        with pytest.raises(InputError, match=r"^shares is .*; it must be a list of numbers or None"):
            call(given)
    call(named={"a": 1})
    for given in ({"a": None}, {1: 1}, {"a": "b"}):
        with pytest.raises(InputError, match=r"^named is .*; it must be a mapping or None"):
            call(named=given)


def test_what_can_be_gone_through_once_becomes_a_list_where_several_things_are_asked_for():
    seen = []

    def public(names: "Sequence[str] | str" = "", texts: "Iterable[str]" = ()):  # noqa: F821
        seen.append((names, texts))

    call, texts = checked(public), iter(["a"])
    call((name for name in "ab"), texts)
    assert seen == [(["a", "b"], texts)]  # texts may be a stream without end
    with pytest.raises(InputError, match=r"names is .*; it must be a list of texts or a text"):
        call(k for k in range(3))
    assert ls.compare(random_reps(), measure=(name for name in ["cka"])).keys() == {"cka"}


def test_numbers_and_texts_that_no_function_can_use_are_refused():
    reps = random_reps()
    for call in (
        lambda: ls.compare(reps, baseline=10**30),
        lambda: ls.specialty(reps, null=10**30),
        lambda: ls.extract("garden:bert-s0", "pydocs", limit=10**30),
        lambda: ls.tune("garden:bert-s0", "pydocs", batch=10**30),
    ):
        with pytest.raises(InputError, match=r"is 10{30}; whole numbers have at most 19 digits"):
            call()
    with pytest.raises(InputError, match=r"tasks is .*half a character"):
        ls.experiments("ren2023", tasks="\ud800")
    for call in (
        lambda: ls.tune("garden:bert-s0", "pydocs", seeds=10**12),
        lambda: ls.experiments("phang2021", seeds=10**12),
    ):
        with pytest.raises(InputError, match="10,000"):
            call()


def test_what_no_file_can_be_called_is_refused():
    for name, reason in [
        ("a\0b", "null character"),
        ("a/\ud800", "half a character"),
        ("a/" + "b" * 256, "at most 255 bytes"),
        (Path("é" * 200), "at most 255 bytes"),
    ]:
        for call in (ls.load_aligner, ls.read_record, lambda path: ls.save("garden:bert-s0", path)):
            with pytest.raises(InputError, match=reason):
                call(name)


def test_where_nothing_is_given_to_work_on_that_is_said():
    for name, call in [
        ("models", lambda: ls.stream([], ["a text"])),
        ("models", lambda: ls.specialty_study({}, "pydocs")),
        ("pools", lambda: ls.specialty_study({"a": "garden:bert-s0"}, "pydocs", pools=[])),
    ]:
        with pytest.raises(InputError, match=f"^{name} is empty; give at least one"):
            call()
    with pytest.raises(InputError, match=r"^noise is nan; it must be a number from 0"):
        ls.synthetic_study(random_reps(), noise=[math.nan])


def test_seeds_are_whole_numbers_from_0():
    reps = random_reps()
    for call in (ls.label_cca, ls.mutual_information, ls.numerical_rank, ls.nuclear_norm, ls.imbalance_study):
        with pytest.raises(InputError, match=r"^seed is -1; it must be a whole number from 0"):
            call(reps, seed=-1)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB"), "memory ran out .*2 GiB"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"), "memory ran out"),
        (RuntimeError("unable to mmap 64 bytes from file <a>: Cannot allocate memory (12)"), "memory ran out"),
        (RuntimeError("std::bad_alloc"), "memory ran out"),
        (OSError(12, "Cannot allocate memory"), "memory ran out"),
        (np._core._exceptions._ArrayMemoryError((1 << 40,), np.dtype("float64")), "memory ran out .*8.00 TiB"),
        (RuntimeError("CUDA error: device-side assert triggered"), "the device failed"),
    ],
)
def test_memory_and_devices_that_fail_within_a_function_are_a_sentence_with_the_way_out(error, said):
    def public(limit: "int | None" = None):
        raise error

    with pytest.raises(
        InputError, match=rf"^ls\.public was not possible: {said}.*; take fewer rows, .* or free memory"
    ):
        checked(public)()


def test_other_errors_of_a_function_stay_as_they_are():
    def public(text: "str"):
        raise RuntimeError(text)

    with pytest.raises(RuntimeError, match=r"^a bug"):
        checked(public)("a bug")


def test_public_functions_can_be_sent_to_other_processes():
    assert pickle.loads(pickle.dumps(ls.describe)) is ls.describe


@pytest.mark.parametrize(
    ("method", "options", "said"),
    [
        ("mlp", {"steps": math.inf}, "steps is inf; it must be a whole number"),
        ("inn", {"batch": None}, "batch is None; it must be a whole number"),
        ("inn", {"hidden": "x"}, "hidden is 'x'; it must be a whole number or None"),
        ("mlp", {"learning_rate": None}, "learning_rate is None; it must be a number"),
        ("svcca", {"keep": "x"}, "keep is 'x'; it must be a number"),
        ("cca", {"ridge": [1]}, r"ridge is \[1\]; it must be a number or a text"),
    ],
)
def test_options_of_a_class_that_is_chosen_by_name_are_checked_too(method, options, said):
    rows = np.random.default_rng(0).normal(size=(20, 4))
    with pytest.raises(InputError, match=said):
        ls.align(rows, rows, method=method, **options)


@pytest.mark.parametrize(
    "call",
    [
        lambda: ls.Representations.from_arrays(3),
        lambda: ls.Representations.load(3),
        lambda: ls.Representations.common(3),
        lambda: ls.Moments.load(3),
        lambda: ls.Similarity.load(3),
        lambda: ls.LayerPlan.parse(3, depth=4),
        lambda: ls.load("garden:bert-s0", tokenizer=3),
        lambda: ls.measure("gulp")(np.eye(4), np.eye(4), ridge=10**30),
        lambda: ls.measure("cka_minibatch")(np.eye(4), np.eye(4), shuffle=10**30),
    ],
)
def test_methods_of_public_classes_check_their_arguments(call):
    with pytest.raises(InputError, match=r"must be|takes one or more|at most 19 digits"):
        call()


def test_methods_that_are_checked_can_be_sent_to_other_processes():
    parse = pickle.loads(pickle.dumps(ls.LayerPlan.parse))
    assert parse("first 2", depth=4) == ls.LayerPlan.parse("first 2", 4)
