"""`compare` against measuring every pair of layers by itself."""

import math
import os
import subprocess
import sys

import numpy as np
import pytest
import zoo

import layerscope as ls
from layerscope.errors import DataError, InputError, LayerscopeWarning
from layerscope.similarity.registry import registry

SENTENCES = ["the file is a list", "return this string", "not an object of that value", "in the list: a, b and c"]


@pytest.fixture(scope="module")
def reps():
    generator = np.random.default_rng(0)
    layers = [generator.normal(size=(60, 6))]
    for _ in range(3):
        layers.append(np.tanh(layers[-1] @ generator.normal(size=(6, 6))) + 0.3 * generator.normal(size=(60, 6)))
    return ls.Representations.from_arrays(layers)


@pytest.fixture
def task(tmp_path):
    path = tmp_path / "corpus.txt"
    path.write_text("\n".join(f"{s} {i} {'and ' * (i % 5)}" for i, s in enumerate(SENTENCES * 15)) + "\n")
    return ls.task(path)


def model(family, seed=0):
    return ls.load(zoo.network(family, "encoder", seed=seed), tokenizer=zoo.tokenizer(family))


@pytest.mark.parametrize("name", sorted(name for name, m in registry().items() if m.needs != "attention"))
def test_every_measure_of_every_pair(name, reps):
    sim = ls.compare(reps, measure=name)
    assert sim.values.shape == (4, 4)
    for i in range(4):
        for j in range(4):
            assert sim.values[i, j] == pytest.approx(ls.measure(name)(reps[i], reps[j]), abs=1e-5)
    assert sim.rows == sim.columns == ["0", "1", "2", "3"]
    assert sim.n == 60


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
    a, b = model("bert"), model("roberta", seed=1)
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


def test_saved_and_loaded(reps, tmp_path):
    constant = ls.Representations.from_arrays([np.ones((60, 2)), reps[1]])
    sim = ls.compare(constant, reps, names=["<script>", "b"])
    again = ls.Similarity.load(sim.save(tmp_path / "a" / "sim.parquet"))
    np.testing.assert_array_equal(again.values, sim.values)
    for name in ("row_axis", "column_axis", "measure", "options", "n", "reasons", "bounds", "provenance"):
        assert getattr(again, name) == getattr(sim, name)
    assert len(sim.frame) == 8
    assert sim.frame["reason"].iloc[0] != ""
    (tmp_path / "x.parquet").write_text("x")
    with pytest.raises(DataError, match="not a similarity"):
        ls.Similarity.load(tmp_path / "x.parquet")


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_heat_maps(ending, reps, tmp_path):
    constant = ls.Representations.from_arrays([np.ones((60, 2)), reps[1]])
    sim = ls.compare([constant, reps])
    path = tmp_path / f"map.{ending}"
    ax = sim.plot(path)
    assert path.stat().st_size > 1000
    image = ax.images[0]
    assert image.origin == "lower"
    assert image.get_clim() == (0.0, 1.0)
    assert len(ax.patches) == int(np.isnan(sim.values).sum()) == 11
    ls.panels({"a": sim, "b": ls.compare(reps)}, tmp_path / f"panels.{ending}")
    with pytest.raises(InputError, match=r"no figure format 'gif'"):
        sim.plot(tmp_path / "map.gif")


def test_nothing_of_a_figure_is_cut_off(reps, tmp_path):
    from matplotlib.image import imread

    wide = ls.compare(ls.Representations.from_arrays([reps[1]] * 13))
    wide.plot(tmp_path / "one.png")
    ls.panels([wide, wide], tmp_path / "two.png")
    for name in ("one.png", "two.png"):
        pixels = imread(tmp_path / name)[..., :3]
        assert all((edge == 1).all() for edge in (pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1])), name


def test_mistakes_are_sentences(reps, task):
    with pytest.raises(InputError, match="cannot be compared row by row: one has 60 rows, the other 5"):
        ls.compare(reps, reps.select(rows=slice(5)))
    with pytest.raises(InputError, match="name a task"):
        ls.compare(model("bert"))
    with pytest.raises(InputError, match="cannot be mixed"):
        ls.compare(reps, model("bert"), task=task)
    with pytest.raises(InputError, match="which have theirs already"):
        ls.compare(reps, task=task)
    with pytest.raises(InputError, match="nothing to compare"):
        ls.compare([])
    with pytest.raises(InputError, match="1 names were given for 2"):
        ls.compare(reps, reps, names=["a"])


def test_an_undefined_pair_is_nan_in_the_matrix_not_a_warning(reps):
    one = ls.compare(reps.select(rows=[3]), measure="cka")
    assert all(math.isnan(v) for v in one.values.ravel())
    assert set(one.reasons.values()) == {"one row has no variation"}


def test_moments_of_stored_rows_do_not_depend_on_the_block(reps, monkeypatch, tmp_path):
    expected = ls.compare(reps, measure="cka").values
    monkeypatch.setattr(sys.modules["layerscope.similarity.arriving"], "BLOCK", 7)
    np.testing.assert_allclose(ls.compare(reps, measure="cka").values, expected, atol=1e-6)
    loaded = ls.Representations.load(reps.save(tmp_path / "reps"))
    np.testing.assert_allclose(ls.compare(loaded, measure="cka").values, expected, atol=1e-6)


TILED = ["cka", "cka_debiased", "svcca", "neuron", "cka_rbf", "cknna", "cka_minibatch"]


@pytest.mark.parametrize("budget", [5e-7, 1.2e-6, 1e-5])
def test_tiles_of_pairs_give_what_all_pairs_at_once_give(budget, reps, caplog):
    """A cross product is 288 bytes here: 5e-7 GiB is two of them, 1.2e-6 GiB four."""
    expected = ls.compare(reps, measure=TILED, standardize=True)
    with caplog.at_level("WARNING", "layerscope"):
        found = ls.compare(reps, measure=TILED, standardize=True, memory=budget)
    assert ("passes over the rows" in caplog.text) == (budget < 1e-5)
    for name in TILED:
        np.testing.assert_allclose(found[name].values, expected[name].values, atol=1e-9, err_msg=name)


def test_models_make_further_passes_where_memory_is_short(task, caplog):
    a, b = model("bert"), model("gpt2")
    expected = ls.compare(a, b, task=task, pool="words", measure=["cka", "neuron"])
    with caplog.at_level("WARNING", "layerscope"):
        found = ls.compare(a, b, task=task, pool="words", measure=["cka", "neuron"], memory=1e-4)
    assert "passes over the rows" in caplog.text
    for name, similarity in expected.items():
        np.testing.assert_allclose(found[name].values, similarity.values, atol=1e-6)
        assert found[name].n == similarity.n > 60


def test_the_pool_is_known_however_rows_are_got(task):
    one = model("bert")
    streamed = ls.compare(one, task=task, pool="mean", max_length=20)
    kept = ls.compare(one, task=task, pool="mean", max_length=20, baseline=True)
    rows = ls.compare(ls.extract(one, task, pool="mean", max_length=20))
    for found in (streamed, kept, rows):
        assert {found.provenance["settings"][name] for name in ("pool", "max_length")} == {"mean", 20}
    mixed = ls.compare(ls.extract(one, task, pool="mean"), ls.extract(one, task, pool="cls"))
    assert "pool" not in mixed.provenance["settings"]


def test_two_processes_add_up_to_one(task, tmp_path):
    folder = zoo.save(tmp_path / "model", "bert")
    expected = ls.compare(folder, task=task, pool="words", measure=["cka", "svcca"], ci=0.9)
    command = [sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes", "2"]
    command += ["--num_machines", "1", "--mixed_precision", "no", "--dynamo_backend", "no", "--main_process_port", "0"]
    command += ["-m", "layerscope", "compare", folder, "--task", str(tmp_path / "corpus.txt"), "--pool", "words"]
    command += ["--measure", "cka,svcca", "--ci", "0.9", "-o", str(tmp_path / "out")]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=300, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.count("cka over corpus (495 rows)\n") == 1  # only one of them prints
    for name, alone in expected.items():
        together = ls.Similarity.load(tmp_path / "out" / f"{name}.parquet")
        assert together.n == alone.n
        for part in ("values", "low", "high"):
            np.testing.assert_allclose(getattr(together, part), getattr(alone, part), rtol=1e-4, atol=1e-5)
