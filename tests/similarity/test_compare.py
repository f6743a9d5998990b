"""`compare` against measuring every pair of layers by itself."""

import math
import os
import subprocess

import numpy as np
import pandas
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError, LayerscopeWarning
from layerscope.models.lineage import learn
from layerscope.registry import MEASURES
from tests.helpers.cli import TWO_PROCESSES
from tests.helpers.data import three_class_frame
from tests.helpers.models import random_model, save_random
from tests.similarity import reference


@pytest.mark.parametrize("name", sorted(name for name, m in MEASURES.items() if m.needs != "attention"))
def test_every_measure_of_every_pair(name, reps):
    sim = ls.compare(reps, measure=name)
    assert sim.values.shape == (4, 4)
    for i in range(4):
        for j in range(4):
            assert sim.values[i, j] == pytest.approx(ls.measure(name)(reps[i], reps[j]), abs=1e-5)
    assert sim.rows == sim.columns == ["0", "1", "2", "3"]
    assert sim.n == 60


OF_STATES = sorted(name for name, m in MEASURES.items() if m.needs != "attention")


@pytest.fixture(scope="module")
def hostile():
    """Layers with one row 3,000 times as long as the others."""
    draw = np.random.default_rng(7).normal
    layers = [draw(size=(120, 20)) for _ in range(3)]
    layers[1] += layers[0]
    for layer in layers:
        layer[5] *= 3000
    return ls.Representations.from_arrays(layers)


@pytest.mark.filterwarnings("ignore::layerscope.errors.LayerscopeWarning")
@pytest.mark.parametrize("few", [False, True])
def test_no_value_depends_on_what_is_measured_beside_it(few, hostile):
    """Few rows go by Gram matrices where a measure can; each measure alone, with each other one, and with all."""
    reps = hostile.select(rows=slice(15)) if few else hostile
    alone = {name: ls.compare(reps, measure=name).values for name in OF_STATES}
    together = ls.compare(reps, measure=OF_STATES)
    for name in OF_STATES:
        np.testing.assert_allclose(together[name].values, alone[name], rtol=0, atol=1e-12, err_msg=name)
        for other in OF_STATES:
            beside = ls.compare(reps, measure=[name, other])[name].values
            np.testing.assert_allclose(beside, alone[name], rtol=0, atol=1e-12, err_msg=f"{name} beside {other}")


@pytest.mark.filterwarnings("ignore::layerscope.errors.LayerscopeWarning")
def test_no_interval_depends_on_what_is_measured_beside_it(hostile):
    names = ["cka", "cka_debiased", "cca", "procrustes", "rsa"]
    together = ls.compare(hostile, measure=names, ci=0.9)
    for name in names:
        alone = ls.compare(hostile, measure=name, ci=0.9)
        for part in ("values", "low", "high", "bias"):
            np.testing.assert_allclose(getattr(together[name], part), getattr(alone, part), rtol=0, atol=1e-9)


def test_streamed_values_do_not_depend_on_what_is_measured_beside_them(task):
    """Where a measure needs rows, all of them come from the store, in another order; sums are in float64 then too."""
    close = {"cka": 1e-12, "cka_debiased": 1e-12, "neuron": 1e-12, "procrustes": 1e-8}  # the last by roots of squares
    beside = ls.compare(random_model("bert"), task=task, pool="mean", measure=[*close, "mutual_knn"])
    for name, difference in close.items():
        alone = ls.compare(random_model("bert"), task=task, pool="mean", measure=name)
        np.testing.assert_allclose(beside[name].values, alone.values, rtol=0, atol=difference)


@pytest.mark.parametrize("name", ["cka", "cka_debiased", "procrustes", "neuron", "cca"])
def test_a_long_row_costs_no_digits(name, hostile):
    sim = ls.compare(hostile, measure=name)
    for i in range(3):
        for j in range(3):
            expected = getattr(reference, name)(hostile[i].double().numpy(), hostile[j].double().numpy())
            assert sim.values[i, j] == pytest.approx(expected, abs=1e-6)


@pytest.mark.filterwarnings("ignore::layerscope.errors.LayerscopeWarning")
@pytest.mark.parametrize("scale", [1e20, 1e-20, 1e36])
@pytest.mark.parametrize("few", [False, True])
def test_very_large_and_very_small_states_give_the_same_values(scale, few, reps):
    """Powers of ten are not exact in float32, so the scaled states differ from the others by rounding."""
    chosen = reps.select(rows=slice(5 if few else 60))
    scaled = ls.Representations.from_arrays([chosen[i].double() * scale for i in range(4)])
    names = [name for name in OF_STATES if "scaling" in MEASURES[name].invariances]
    expected, found = (ls.compare(r, measure=names, k=2) for r in (chosen, scaled))
    for name in names:
        np.testing.assert_allclose(found[name].values, expected[name].values, atol=1e-5, err_msg=name)
        assert set(found[name].reasons) == {tuple(cell) for cell in np.argwhere(np.isnan(found[name].values))}


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("name", ["cka", "cka_debiased", "cca", "rsa", "cka_minibatch"])
@pytest.mark.parametrize("n", [6, 60])
def test_what_is_no_number_is_named(name, value, n, reps):
    broken = {layer: reps[layer][:n].clone() for layer in reps.layers}
    broken[2][4, 1] = value
    word = "a NaN" if math.isnan(value) else "an infinity"
    for extra in ({}, {"baseline": True}, {"ci": 0.9} if n > 40 else {}):
        with pytest.raises(InputError, match=f"Layer 2 has {word} in row 4; every state must be a finite"):
            ls.compare(list(broken.values()), measure=name, **extra)


@pytest.mark.filterwarnings("ignore::layerscope.errors.LayerscopeWarning")
@pytest.mark.parametrize("name", ["cca", "cca_squared", "mixed", "linear_regression", "neuron"])
def test_a_column_of_another_scale_changes_no_rank(name):
    """Rows of rank 12 in 20 columns: the rank is that of the columns at unit variance, whatever their scales."""
    draw = np.random.default_rng(3).normal
    x = draw(size=(300, 12)) @ draw(size=(12, 20))
    y = x @ draw(size=(20, 9)) + 3 * draw(size=(300, 9))
    scaled = x * np.where(np.arange(20) == 4, 1e7, 1.0)
    sides = [ls.Representations.from_arrays([x, scaled]), ls.Representations.from_arrays([y])]
    # y's own scale matters to linear_regression, x's to none of them
    one, other = ls.compare(*sides, measure=name).values[:, 0]
    assert other == pytest.approx(one, abs=1e-6)
    assert other == pytest.approx(getattr(reference, name)(x, y), abs=1e-5)
    assert ls.measure(name)(scaled, y) == pytest.approx(ls.measure(name)(x, y), abs=1e-7)


def test_an_option_may_be_of_one_measure(reps):
    both = ls.compare(reps, measure=["svcca", "pwcca"], keep=0.9, **{"pwcca.keep": 0.6})
    assert both["svcca"].options == {"keep": 0.9}
    assert both["pwcca"].options == {"keep": 0.6}
    np.testing.assert_array_equal(both["pwcca"].values, ls.compare(reps, measure="pwcca", keep=0.6).values)
    with pytest.raises(InputError, match=r"The option cca.keep is for the measure 'cca', and svcca was asked for"):
        ls.compare(reps, measure="svcca", **{"cca.keep": 0.9})
    with pytest.raises(InputError, match="svcca has no option 'kep'"):
        ls.compare(reps, measure=["cka", "svcca"], **{"svcca.kep": 0.9})


@pytest.mark.parametrize("name", ["cka", "svcca", "neuron", "pwcca", "cka_debiased"])
def test_two_sets_stand_on_rows_and_columns(name, reps):
    other = ls.Representations.from_arrays([reps[3] ** 2, reps[1] + reps[2]])
    sim = ls.compare(reps, other, measure=name)
    assert sim.values.shape == (4, 2)
    for i in range(4):
        for j in range(2):
            assert sim.values[i, j] == pytest.approx(ls.measure(name)(reps[i], other[j]), abs=1e-5)


def test_what_is_true_of_many_pairs_is_said_once(reps, recwarn):
    few = reps.select(rows=slice(0, 10))
    found = ls.compare(few, measure=["cca", "cka"])
    (said,) = [one for one in recwarn if issubclass(one.category, LayerscopeWarning)]
    assert str(said.message).startswith("cca, 10 pairs of layers, such as one with ")
    assert found["cca"].provenance["warning"] in str(said.message)
    assert "warning" not in found["cka"].provenance


def test_several_measures_share_the_pass_and_options_go_where_they_belong(reps):
    found = ls.compare(reps, measure=["cka", "svcca", "mutual_knn"], keep=0.7, k=5, standardize=True)
    assert list(found) == ["cka", "svcca", "mutual_knn"]
    expected = ls.measure("svcca")(reps[0], reps[2], keep=0.7, standardize=True)
    assert found["svcca"].values[0, 2] == pytest.approx(expected, abs=1e-9)
    assert found["mutual_knn"].options == {"k": 5}
    with pytest.raises(InputError, match="has no option 'kepe'"):
        ls.compare(reps, measure=["cka", "svcca"], kepe=0.5)


def test_a_list_gives_all_pairs_as_one_block_matrix(reps):
    sim = ls.compare([reps, reps.select(layers=[0, 1])], names=["one", "two"])
    assert sim.values.shape == (6, 6)
    assert sim.rows[3:5] == ["one:3", "two:0"]
    assert sim.row_axis.side.edges == [4]
    assert sim.values[1, 5] == pytest.approx(1.0)


@pytest.mark.parametrize("pool", ["mean", "words", "cls"])
def test_models_stream_and_give_what_their_representations_give(pool, task):
    a, b = random_model("bert"), random_model("roberta", seed=1)
    names = ["cka", "pwcca", "neuron", "cka_debiased", "mutual_knn"]
    streamed = ls.compare(a, b, measure=names, task=task, pool=pool)
    reps = [ls.extract(m, task, pool=pool, store=False) for m in (a, b)]
    stored = ls.compare(*reps, measure=names)
    for name in names:
        np.testing.assert_allclose(streamed[name].values, stored[name].values, atol=1e-4)
        assert streamed[name].n == len(reps[0])
    if pool == "cls":  # layer 0 of the summary token is one vector
        assert np.isnan(streamed["cka"].values[0]).all()
        assert "every row is the same" in streamed["cka"].reasons[0, 3]
        assert not np.isnan(streamed["cka"].values[1:, 1:]).any()


def test_mistakes_are_sentences(reps, task):
    with pytest.raises(InputError, match="cannot be compared row by row: one has 60 rows, the other 5"):
        ls.compare(reps, reps.select(rows=slice(5)))
    with pytest.raises(InputError, match="name a task"):
        ls.compare(random_model("bert"))
    with pytest.raises(InputError, match="cannot be mixed"):
        ls.compare(reps, random_model("bert"), task=task)
    with pytest.raises(InputError, match="which have theirs already"):
        ls.compare(reps, task=task)
    ways = {"split": "train", "limit": 10, "pool": "mean", "max_length": 64, "final_norm": True}
    for name, value in ways.items():
        with pytest.raises(InputError, match=f"{name} was given together with representations"):
            ls.compare(reps, **{name: value})
    with pytest.raises(InputError, match="nothing to compare"):
        ls.compare([])
    with pytest.raises(InputError, match="1 names were given for 2"):
        ls.compare(reps, reps, names=["a"])
    for memory in (0, float("nan")):
        with pytest.raises(InputError, match=f"memory is {memory}; it must be a number of GiB"):
            ls.compare(reps, memory=memory)


def test_an_undefined_pair_is_nan_in_the_matrix_not_a_warning(reps):
    one = ls.compare(reps.select(rows=[3]), measure="cka")
    assert all(math.isnan(v) for v in one.values.ravel())
    assert set(one.reasons.values()) == {"one row has no variation"}
    for name in ("cka", "neuron", "procrustes", "cka_rbf", "distance_correlation"):
        two = ls.compare(reps.select(rows=[3, 5]), measure=name)
        assert {reason[:22] for reason in two.reasons.values()} == {"two rows lie on a line"}, name


TILED = ["cka", "cka_debiased", "svcca", "neuron", "cka_rbf", "cknna", "cka_minibatch"]


@pytest.mark.parametrize("budget", [5e-7, 1.2e-6, 1e-5])
def test_tiles_of_pairs_give_what_all_pairs_at_once_give(budget, reps, caplog):
    """A cross product is 288 bytes here: 5e-7 GiB is two of them, 1.2e-6 GiB four."""
    expected = ls.compare(reps, measure=TILED, standardize=True)
    with caplog.at_level("INFO", "layerscope"):
        found = ls.compare(reps, measure=TILED, standardize=True, memory=budget)
    assert ("passes over the rows" in caplog.text) == (budget < 1e-5)
    for name in TILED:
        np.testing.assert_allclose(found[name].values, expected[name].values, atol=1e-9, err_msg=name)


@pytest.mark.slow
def test_two_processes_add_up_to_one(task, tmp_path):
    folder = save_random(tmp_path / "model", "bert")
    with pytest.warns(LayerscopeWarning, match="svcca: in 4 of 25 pairs of layers the bias is larger"):
        expected = ls.compare(folder, task=task, pool="words", measure=["cka", "svcca", "angular"], ci=0.9)
    command = [*TWO_PROCESSES, "-m", "layerscope", "compare", folder, "--task", str(tmp_path / "corpus.txt")]
    command += ["--pool", "words"]
    command += ["--measure", "cka,svcca,angular", "--ci", "0.9", "-o", str(tmp_path / "out")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("cka over corpus (495 rows)\n") == 1  # only one of them prints
    for name, alone in expected.items():
        together = ls.Similarity.load(tmp_path / "out" / f"{name}.parquet")
        assert together.n == alone.n
        for part in ("values", "low", "high"):
            np.testing.assert_allclose(getattr(together, part), getattr(alone, part), rtol=1e-4, atol=1e-5)


def test_arrays_and_lists_of_arrays():
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(50, 8)), generator.normal(size=(50, 5)).astype("float32")
    one = ls.compare(x, y)
    assert one.values.shape == (1, 1)
    assert one.values[0, 0] == pytest.approx(ls.measure("cka")(x, y), rel=1e-4)
    np.testing.assert_allclose(ls.compare(torch.tensor(x), y).values, one.values, rtol=1e-6)
    several = ls.compare([x, torch.tensor(y)], [y, x, x], measure=["cka", "mutual_knn"])
    assert several["cka"].values.shape == several["mutual_knn"].values.shape == (2, 3)
    assert several["cka"].values[0, 0] == pytest.approx(one.values[0, 0], rel=1e-5)


@pytest.mark.parametrize(
    ("a", "b", "sentence"),
    [
        (np.ones((5, 2)), np.ones((4, 2)), "one has 5 rows, the other 4"),
        ([np.ones((5, 2)), np.ones((4, 2))], None, "Array 1 has 4 rows and array 0 has 5; all need the same"),
        (np.ones(5), np.ones((5, 2)), r"Array 0 has shape \(5,\); a layer is an array with two dimensions"),
        (torch.ones(5, 2, 1), np.ones((5, 2)), r"Array 0 has shape \(5, 2, 1\); a layer is an array with two"),
        (np.full((5, 2), "a"), np.ones((5, 2)), "Array 0 holds <U1; real numbers are needed"),
        (torch.ones(5, 2) * 1j, np.ones((5, 2)), "Array 0 holds torch.complex64; real numbers are needed"),
        ([], np.ones((5, 2)), "There is nothing to compare: an empty list was given"),
        (np.ones((5, 2)), "garden:bert-s0", "cannot be mixed|name a task"),
    ],
)
def test_wrong_arrays_are_sentences(a, b, sentence):
    with pytest.raises(InputError, match=sentence):
        ls.compare(a, b)


def test_rows_that_a_model_learned_from_are_told(caplog):
    data = ls.task({"validation": three_class_frame(20, 0)})
    opened = ls.load(random_model())
    assert "learned" not in ls.compare(opened, task=data, pool="mean").provenance["data"]
    learn(opened.network, data.split("validation").take(slice(8)))
    told = "learned from 6 of the 6 rows that are compared; on others its layers may be less alike, or more"
    for more in ({}, {"baseline": 2}, {"measure": "attention_js"}):
        pool = {} if more.get("measure") else {"pool": "mean"}
        found = ls.compare(opened, task=data, limit=6, **pool, **more)
        assert found.provenance["data"]["learned"].endswith(f"{told}.")
        assert any(told in str(finding) for finding in found.findings())
    assert told in caplog.text
    other = ls.task({"validation": pandas.DataFrame({"text": ["not", "a list of it", "the file"] * 5})})
    assert "learned" not in ls.compare(opened, task=other, pool="mean").provenance["data"]
