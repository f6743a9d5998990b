"""Statistics of similarities, beside the same computed cell by cell."""

import math
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.stats import spearmanr

import layerscope as ls
from layerscope.recipes.claims import claims, verdict
from layerscope.recipes.statistics.similarities import depths, family_names
from layerscope.registry import STATISTICS
from layerscope.resampling import jackknifed
from layerscope.similarity.result import Axis, Similarity

CLASSES = {"b0": "BertForMaskedLM", "b1": "BertModel", "g": "GPT2LMHeadModel", "random:b0": "BertForMaskedLM"}


def axis(*models):
    """Of (name, depth) pairs: layers 0..depth of each."""
    pairs = [(name, layer) for name, depth in models for layer in range(depth + 1)]
    return Axis(tuple(n for n, _ in pairs), tuple(k for _, k in pairs), tuple(str(k) for _, k in pairs))


def similarity(rows, columns=None, seed=0, groups=20):
    columns = columns or rows
    generator = np.random.default_rng(seed)
    values = generator.uniform(size=(len(rows), len(columns)))
    left_out = values + 0.01 * generator.normal(size=(groups, *values.shape)) if groups else None
    models = [{"name": name, "class": CLASSES[name]} for name in dict.fromkeys(rows.models)]
    return Similarity(values, rows, columns, "cka", {}, 50, provenance={"models": models}, left_out=left_out)


def check(said, value, matrices):
    """The value, and its interval from the same function of what is left."""
    np.testing.assert_allclose(said.value, value(*(m.values for m in matrices)))
    groups = np.asarray([value(*parts) for parts in zip(*(m.left_out for m in matrices), strict=True)])
    np.testing.assert_allclose(said.high - said.value, jackknifed(groups))
    np.testing.assert_allclose(said.value - said.low, jackknifed(groups))


def test_the_most_similar_column_of_the_top_row():
    s = similarity(axis(("b0", 4)), axis(("b1", 6)))
    check(STATISTICS["most_alike"]({"s": s}, "s"), lambda m: max(m[4]), [s])


def test_the_diagonal_of_a_range_less_that_of_another():
    s = similarity(axis(("b0", 6)))
    said = STATISTICS["diagonal"]({"s": s}, "s", layers=[0.01, 0.34], minus=[0.67, 1])
    check(said, lambda m: (m[1, 1] + m[2, 2]) / 2 - (m[5, 5] + m[6, 6]) / 2, [s])  # 4 of 6 is below 0.67
    check(STATISTICS["diagonal"]({"s": s}, "s", layers=[1, 1]), lambda m: m[6, 6], [s])


def test_corners_of_models_of_different_depth():
    s = similarity(axis(("b0", 4)), axis(("b1", 8)))

    def value(m):
        late = [m[i, j] for i in (3, 4) for j in (6, 7, 8)]
        across = [m[1, j] for j in (6, 7, 8)] + [m[i, j] for i in (3, 4) for j in (1, 2)]
        return np.mean(late) - np.mean(across)

    check(STATISTICS["corners"]({"s": s}, "s"), value, [s])


def test_neighbours_are_those_of_one_model():
    s = similarity(axis(("b0", 4), ("g", 4)))

    def value(m):
        parts = (m[:5, :5], m[5:, 5:])
        near = [np.mean([p[i, i + 1] for i in range(4)]) for p in parts]
        far = [np.mean([p[i, i + 2] for i in range(3)]) for p in parts]
        return np.mean(near) - np.mean(far)

    check(STATISTICS["neighbours_alike"]({"s": s}, "s"), value, [s])


def test_families_are_compared_at_the_same_depth():
    layers = axis(("b0", 2), ("b1", 4), ("g", 2))  # b1's layers 0, 2 and 4 are at the depths of the others
    s, other = similarity(layers), similarity(layers, seed=1)
    pairs = {"b": [(0, 3), (1, 5), (2, 7)], "g": [(0, 8), (1, 9), (2, 10), (3, 8), (5, 9), (7, 10)]}

    def gap(m):
        inside, across = ([m[i, j] for i, j in p] + [m[j, i] for i, j in p] for p in pairs.values())
        return np.mean(inside) - np.mean(across)

    check(STATISTICS["same_family"]({"s": s}, "s"), gap, [s])
    said = STATISTICS["same_family"]({"s": s, "o": other}, "s", less="o")
    check(said, lambda m, o: gap(m) - gap(o), [s, other])
    joined = STATISTICS["same_family"]({"s": s}, "s", families={"GPT2": "Bert"})
    assert "two families" in joined.reason


def test_only_untrained_models_where_that_is_asked():
    s = similarity(axis(("b0", 2), ("random:b0", 2), ("g", 2)))
    assert "two models of one family" in STATISTICS["same_family"]({"s": s}, "s", only="random:").reason
    assert not STATISTICS["same_family"]({"s": s}, "s").reason


def test_a_shallow_model_does_not_tip_the_balance_of_depths():
    """A model with a top layer only has no lower one to compare it with: its pairs count for nothing."""
    layers = axis(("b0", 4), ("g", 4), ("b1", 1))  # b1 has layers 0 and 1, at depths 0 and 1
    s = similarity(layers)
    said = STATISTICS["across_families"]({"s": s}, "s", layers=[0.01, 0.34], minus=[0.67, 1])

    def value(m):
        low = [m[1, 6], m[6, 1]]
        high = [m[3, 8], m[8, 3], m[4, 9], m[9, 4]]
        return np.mean(low) - np.mean(high)

    check(said, value, [s])


def test_lower_layers_across_families_only():
    s = similarity(axis(("b0", 2), ("b1", 2), ("g", 2)))
    low = [(1, 7), (4, 7), (7, 1), (7, 4)]
    high = [(2, 8), (5, 8), (8, 2), (8, 5)]

    def value(m):
        return np.mean([m[i, j] for i, j in low]) - np.mean([m[i, j] for i, j in high])

    check(STATISTICS["across_families"]({"s": s}, "s", layers=[0.4, 0.6], minus=[0.9, 1]), value, [s])
    alone = similarity(axis(("b0", 2), ("b1", 2)))
    assert STATISTICS["across_families"]({"s": alone}, "s", layers=[0, 1], minus=[0, 1]).reason


def localised(neuron, svcca):
    off = ~np.eye(len(neuron), dtype=bool)
    return np.asarray([neuron[i][off[i]].mean() - svcca[i][off[i]].mean() for i in range(len(neuron))])


def test_localization_over_depth_and_after_tuning():
    layers = axis(("b0", 3), ("b1", 3))
    neuron, svcca = similarity(layers), similarity(layers, seed=1)
    values = {"n": neuron, "s": svcca}

    def trend(n, s):
        each = localised(n, s)
        return np.mean([spearmanr(range(4), each[:4]).statistic, spearmanr(range(4), each[4:]).statistic])

    check(STATISTICS["localization_trend"](values, "n", "s"), trend, [neuron, svcca])
    change = STATISTICS["localization_change"](values, "n", "s", layers=[0.6, 1])

    def later(n, s):
        each = localised(n, s)
        return each[[6, 7]].mean() - each[[2, 3]].mean()

    check(change, later, [neuron, svcca])


def test_undefined_cells_are_left_out_and_all_undefined_is_not_testable():
    s = similarity(axis(("b0", 6)))
    s.values[1, 1] = math.nan
    s.left_out[:, 1, 1] = math.nan
    said = STATISTICS["diagonal"]({"s": s}, "s", layers=[0.01, 0.34])
    assert said.value == s.values[2, 2]
    s.values[2, 2] = math.nan
    with pytest.warns(RuntimeWarning, match="empty"):
        assert "undefined" in STATISTICS["diagonal"]({"s": s}, "s", layers=[0.01, 0.34]).reason
    assert math.isnan(STATISTICS["most_alike"]({"s": similarity(axis(("b0", 6)), groups=0)}, "s").low)


def test_blocks_bring_their_own_interval():
    cut = SimpleNamespace(
        strength=0.4, low=0.3, high=0.5, p_value=math.nan, significant=False, similarity=SimpleNamespace(n=7)
    )
    said = STATISTICS["block_strength"]({"b": cut}, "b")
    assert (said.value, said.low, said.high, said.n, said.note) == (0.4, 0.3, 0.5, 7, "no p-value")


@pytest.mark.parametrize(("p", "decided"), [(0.01, "holds"), (0.3, "undecided"), (math.nan, "not testable")])
def test_a_p_value_can_show_an_edge_and_refute_none(p, decided):
    (claim,) = [claim for claim in claims() if claim.statistic == "block_edge"]
    cut = SimpleNamespace(
        p_value=p, significant=p < 0.05, similarity=SimpleNamespace(n=7), reasons={"p_value": "2 blocks need 5 steps"}
    )
    said = STATISTICS["block_edge"]({"ft_blocks": cut}, **claim.options)
    assert verdict(claim, said) == decided
    assert said.reason == ("2 blocks need 5 steps" if math.isnan(p) else "")


def test_families_are_read_off_the_class():
    s = similarity(axis(("b0", 1), ("b1", 1), ("g", 1)))
    assert family_names(s, {"GPT2": "GPT"})[::2] == ["Bert", "Bert", "GPT"]
    assert depths(s.row_axis).tolist() == [0, 1] * 3


def test_blocks_of_one_matrix_beside_those_of_another():
    layers = axis(("b0", 5))
    first, second = similarity(layers), similarity(layers, seed=1)
    for s in (first, second):
        for m in (s.values, *s.left_out):
            m[:] = (m + m.T) / 2
            np.fill_diagonal(m, 1)
    cuts = [ls.layer_blocks(s, k=2) for s in (first, second)]

    def strength(m, start):
        pairs = [(i, j) for i in range(6) for j in range(i)]
        same = [m[i, j] for i, j in pairs if (i < start) == (j < start)]
        return np.mean(same) - np.mean([m[i, j] for i, j in pairs if (i < start) != (j < start)])

    assert STATISTICS["block_strength"]({"a": cuts[0]}, "a").note.startswith("gradual change would give as much (p = ")
    starts = [cut.positions[0] for cut in cuts]
    said = STATISTICS["stronger_blocks"]({"a": cuts[0], "b": cuts[1]}, "a", "b")
    check(said, lambda x, y: strength(x, starts[0]) - strength(y, starts[1]), [first, second])
    np.testing.assert_allclose(said.value, cuts[0].strength - cuts[1].strength)


def test_what_is_shared_across_models_beside_what_is_within_one():
    layers = axis(("b0", 2), ("g", 1))
    first, second = similarity(layers), similarity(layers, seed=1)
    within = [(0, 1), (0, 2), (1, 2), (3, 4)]
    across = [(i, j) for i in range(3) for j in (3, 4)]

    def share(m):
        means = [np.mean([m[i, j] for i, j in p] + [m[j, i] for i, j in p]) for p in (across, within)]
        return means[0] / means[1]

    said = STATISTICS["shared_across_models"]({"s": first, "o": second}, "s", less="o")
    check(said, lambda m, o: share(m) - share(o), [first, second])
    alone = similarity(axis(("b0", 2)))
    assert "two models" in STATISTICS["shared_across_models"]({"s": alone}, "s", less="s").reason
