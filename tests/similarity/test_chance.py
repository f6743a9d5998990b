"""What chance gives: texts change places whole, and one shuffle serves all pairs and the best of them."""

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.errors import InputError
from layerscope.extraction.row_store import Rows
from layerscope.registry import MEASURES
from layerscope.resampling import counterparts, exchanged
from layerscope.similarity import chance
from layerscope.similarity.execution_plan import Groups, Plan
from layerscope.similarity.layer_sources import Stored
from tests.helpers.models import random_network, word_tokenizer
from tests.similarity.pairs import NAMES


def words(texts, sizes, seed, width=16, spread=0.3):
    """Independent states of two models: each text has a place of its own, and its words lie around it."""
    generator = np.random.default_rng(seed)
    sizes = np.broadcast_to(sizes, texts)
    number = np.repeat(np.arange(texts), sizes)
    rows = Rows("t", "all", "f", number, unit=np.concatenate([np.arange(size) for size in sizes]), units="word")
    return [
        ls.Representations.from_arrays(
            [generator.normal(size=(texts, width))[number] + spread * generator.normal(size=(len(number), width))],
            rows=rows,
        )
        for _ in range(2)
    ]


def test_words_of_one_text_are_shuffled_together():
    """50 texts with 20 words each: independent states have a CKA of .2, and chance gives as much, not .02."""
    sim = ls.compare(*words(50, 20, 0), baseline=39)
    assert sim.values[0, 0] == pytest.approx(sim.baseline[0, 0], abs=0.06)
    assert sim.baseline[0, 0] > 0.15
    assert sim.p_values[0, 0] > 0.05
    assert sim.calibrated[0, 0] == 0


def test_texts_of_unlike_lengths_do_not_make_chance_look_small():
    sizes = np.random.default_rng(1).integers(5, 36, 60)
    baselines, values = [], []
    for seed in range(6):
        sim = ls.compare(*words(60, sizes, seed), baseline=10)
        values.append(sim.values[0, 0])
        baselines.append(sim.baseline[0, 0])
    assert np.mean(baselines) == pytest.approx(np.mean(values), rel=0.08)


def test_the_numbers_beside_a_value():
    values = np.asarray([[0.5, 0.05, np.nan, 1.0]])
    spread = np.linspace(0.0, 0.38, 20)[:, None, None] + np.asarray([[0.0, 0.0, 0.0, 0.62]])
    p = chance.p_values(values, spread)
    np.testing.assert_allclose(p, [[1 / 21, 18 / 21, np.nan, 2 / 21]])
    above = chance.calibrated(values, spread)
    np.testing.assert_allclose(above, [[(0.5 - 0.38) / 0.62, 0.0, np.nan, 0.0]])


def test_rounding_does_not_decide_a_p_value():
    """Where every row of a layer is the same, no shuffle changes a cosine: only the order of its sum."""
    draw = np.random.default_rng(0).normal
    sim = ls.compare([np.tile(draw(size=8), (100, 1)), draw(size=(100, 8))], measure="cosine", baseline=99)
    assert sim.p_values[0, 1] == sim.p_values[1, 0] == sim.best.p_value == 1
    assert sim.calibrated[0, 1] == sim.calibrated[1, 0] == 0


@pytest.mark.parametrize("name", ["cka", "neuron"])
def test_shuffles_that_leave_every_text_in_its_place_give_as_much(name, monkeypatch):
    """Of few texts many shuffles do; the value comes from float32 products of other blocks than theirs."""
    monkeypatch.setattr(chance, "exchanged", lambda texts, **_: np.arange(len(texts)))
    draw = np.random.default_rng(0).normal
    for _ in range(5):
        sim = ls.compare([draw(size=(5, 4)), draw(size=(5, 4))], measure=name, baseline=19)
        assert set(sim.p_values[~np.isnan(sim.values)]) == {1.0}


@pytest.mark.parametrize("count", [19, 20, 39, 200])
def test_above_chance_and_a_small_p_value_are_the_same_thing(count):
    generator = np.random.default_rng(count)
    values, spread = generator.normal(size=5000) + 1.5, generator.normal(size=(count, 5000))
    np.testing.assert_array_equal(chance.p_values(values, spread) <= 0.05, chance.calibrated(values, spread, 9.0) > 0)


@pytest.mark.filterwarnings("ignore::layerscope.errors.LayerscopeWarning")
@pytest.mark.parametrize("name", NAMES)
def test_every_way_to_shuffle_gives_what_the_rows_in_that_order_give(name, reps):
    rows = Stored(Groups(reps.select(layers=[0, 1]), reps.select(layers=[2, 3])), None)
    taken = np.random.default_rng(3).permutation(60)
    of_order = chance._shuffled(MEASURES[name], Plan((MEASURES[name],), {}), rows)
    expected = [
        [ls.measure(name)(reps[i].double(), reps[j].double()[torch.from_numpy(taken)]) for j in (2, 3)] for i in (0, 1)
    ]
    for _ in range(2):  # what is kept of the first shuffle does no harm to the second
        np.testing.assert_allclose(of_order(taken), expected, atol=1e-9 if not MEASURES[name].estimate else 1e-5)


@pytest.mark.filterwarnings("ignore::layerscope.errors.LayerscopeWarning")
@pytest.mark.parametrize("name", ["cka", "cka_debiased", "svcca", "rsa"])
@pytest.mark.parametrize("width", [4, 60])
def test_texts_of_unlike_lengths_are_judged_by_the_rows_that_they_share(name, width):
    """Values and shuffles alike are over the rows that have a counterpart in texts of about their length."""
    sides = words(16, np.tile([3, 4, 9, 10], 4), 0, width)
    sim = ls.compare(*sides, measure=name, baseline=19, seed=4)
    kept, classes = counterparts(sides[0].rows.row)
    assert sim.provenance["baseline"] == {"rows": len(kept)}
    assert len(kept) == 8 * 2 + 8 * 8
    assert f"over {len(kept)} of {len(sides[0])} rows" in sim.figures()[0].reading
    x, y = (side[0].double()[torch.from_numpy(kept)] for side in sides)
    texts = sides[0].rows.row[kept]
    seeds = np.random.SeedSequence(4).generate_state(19)
    orders = [exchanged(texts, seed=int(seed), classes=classes) for seed in seeds]
    expected = [ls.measure(name)(x, y[torch.from_numpy(order)], texts=texts) for order in orders]
    assert sim.baseline[0, 0] == pytest.approx(np.mean(expected), abs=1e-6)  # cka from float32 products
    value = ls.measure(name)(x, y, texts=texts)
    assert sim.p_values[0, 0] == (1 + sum(each >= value - 1e-6 for each in expected)) / 20
    assert sim.values[0, 0] == pytest.approx(ls.measure(name)(*(s[0].double() for s in sides), texts=sides[0].rows.row))


@pytest.mark.parametrize("end", [False, True], ids=["first", "last"])
def test_what_the_rows_at_one_place_share_is_not_taken_for_likeness(end):
    """One row of every text lies far away on both sides: the first, as decoders' do, or the last, a full stop."""
    found = []
    for seed in range(20):
        sizes = np.random.default_rng(seed).integers(14, 21, 30)
        sides = words(30, sizes, seed)
        unit = sides[0].rows.unit
        place = np.repeat(sizes, sizes) - 1 - unit if end else unit
        there = torch.from_numpy((place == 0)[:, None] * 10.0).float()
        far = [ls.Representations.from_arrays([side[0] + there], rows=side.rows) for side in sides]
        found.append(ls.compare(*far, baseline=19, seed=seed).p_values[0, 0])
    assert np.mean(np.asarray(found) <= 0.05) <= 0.15


@pytest.mark.parametrize("name", ["cka", "cka_debiased"])
def test_few_rows_go_by_gram_matrices(name):
    draw = np.random.default_rng(0).normal
    reps = ls.Representations.from_arrays([draw(size=(12, 30)), np.ones((12, 30)), draw(size=(12, 30))])
    rows = Stored(Groups(reps, None), None)
    of_order = chance._shuffled(MEASURES[name], Plan((MEASURES[name],), {}), rows)
    assert isinstance(of_order, chance._OfGrams)
    taken = np.random.default_rng(3).permutation(12)
    values = of_order(taken)
    assert np.isnan(values[1]).all()
    expected = ls.measure(name)(reps[0].double(), reps[2].double()[torch.from_numpy(taken)])
    assert values[0, 2] == pytest.approx(expected, abs=1e-9)


def test_the_best_pair_is_judged_by_the_best_of_chance():
    """Ten layers against ten that have nothing to do with them: some pair is high, but not for a best of a hundred."""
    draw = np.random.default_rng(5).normal
    sides = [ls.Representations.from_arrays([draw(size=(40, 6)) for _ in range(10)]) for _ in range(2)]
    sim = ls.compare(*sides, measure="cka_debiased", baseline=99, seed=2)
    assert sim.values.max() == sim.best.value
    assert sim.values[sim.rows.index(sim.best.row), sim.columns.index(sim.best.column)] == sim.best.value
    assert sim.p_values.min() <= 0.02
    assert sim.best.p_value > 0.1
    assert sim.best.calibrated == 0
    assert sim.calibrated.max() > 0
    assert sim.best.baseline > sim.baseline.max()
    # By hand, from the same orders.
    seeds = np.random.SeedSequence(2).generate_state(99)
    highest = [
        max(
            ls.measure("cka_debiased")(a, b)
            for a in sides[0]._states.values()
            for b in [sides[1][k][exchanged(np.arange(40), seed=int(seed))] for k in range(10)]
        )
        for seed in seeds[:3]
    ]
    assert np.mean(highest) == pytest.approx(sim.best.baseline, abs=0.1)


def test_a_layer_is_not_its_own_best_pair(reps):
    sim = ls.compare(reps, baseline=19)
    assert sim.best.row != sim.best.column
    assert sim.best.p_value == 1 / 20
    assert ls.compare(reps.select(layers=[1]), baseline=19).best is None


def test_everything_is_kept_and_seeded(reps, tmp_path):
    constant = ls.Representations.from_arrays([np.ones((60, 2)), reps[1]])
    both = ls.compare(constant, reps, measure=["cka", "rsa"], baseline=19, seed=4)
    for sim in both.values():
        again = ls.Similarity.load(sim.save(tmp_path / f"{sim.measure}.parquet"))
        for part in ("baseline", "p_values", "calibrated"):
            np.testing.assert_array_equal(getattr(again, part), getattr(sim, part))
        assert again.best == sim.best
        assert set(again.frame) >= {"baseline", "p_value", "calibrated"}
        assert np.isnan(sim.p_values[0]).all()
        assert set(sim.reasons) == {(0, j) for j in range(4)}
    alone = ls.compare(constant, reps, baseline=19, seed=4)
    np.testing.assert_array_equal(alone.p_values, both["cka"].p_values)
    assert not np.array_equal(ls.compare(constant, reps, baseline=19, seed=5).baseline[1], alone.baseline[1])


def test_five_shuffles_give_the_mean_alone(reps):
    sim = ls.compare(reps, baseline=True)
    np.testing.assert_array_equal(sim.baseline, ls.compare(reps, baseline=5).baseline)
    assert sim.p_values is sim.calibrated is sim.best is None


def test_models_are_shuffled_as_their_representations_are(tmp_path):
    path = tmp_path / "c.txt"
    path.write_text("\n".join(f"the file {i} {'is a ' * (i % 4)} list" for i in range(30)) + "\n")
    model = ls.load(random_network("bert", "encoder"), tokenizer=word_tokenizer())
    streamed = ls.compare(model, task=path, pool="words", baseline=19)
    stored = ls.compare(ls.extract(model, path, pool="words"), baseline=19)
    np.testing.assert_allclose(streamed.baseline, stored.baseline, atol=1e-5)
    np.testing.assert_array_equal(streamed.p_values, stored.p_values)


def test_mistakes_are_sentences(reps):
    with pytest.raises(InputError, match="baseline is -1; it must be True, or a number of shuffles"):
        ls.compare(reps, baseline=-1)
    with pytest.raises(InputError, match=r"baseline is 0\.5; it must be True, False or a whole number"):
        ls.compare(reps, baseline=0.5)
