"""Findings of maps between models."""

import pandas

from layerscope.alignment.alignment_study import AlignmentStudy


def study(pairs=1, models=("a", "b")):
    return AlignmentStudy(errors(pairs), {"models": [{"name": name} for name in models]})


def errors(pairs=1):
    rows = []
    for pair in range(pairs):
        for layer in (0, 1, 2):
            for method, relative in (("identity", 1.5), ("linear", 0.1 * (layer + 1))):
                bounds = {"relative": relative, "relative_low": relative - 0.02, "relative_high": relative + 0.02}
                about = {"source": f"a{pair}", "target": "b", "layer": layer, "target_layer": layer, "n": 100}
                rows.append({**about, "method": method, "split": "test", **bounds})
    return pandas.DataFrame(rows)


def test_the_best_map_of_the_top_layer_is_told_with_its_interval():
    top, over = study().findings()
    assert top.text == (
        "Maps from a0 to b at layer 2, on texts that they did not learn from, leave this much of the spread "
        "unexplained: identity 150%, linear 30%. The best, linear, leaves less than the mean of the texts does."
    )
    assert top.evidence == "linear: 95% interval 0.280 to 0.320, n = 100"
    assert top.sure is True
    assert "between 10% (layer 0) and 30% (layer 2)" in over.text


def test_a_mean_over_pairs_has_no_interval():
    assert study(2).findings()[0].sure is None
    assert "means over 2 pairs of models" in study(2).findings()[0].evidence


def test_two_models_are_injected_into_one_another_next():
    step = study().next_step()
    assert (step.command, step.models) == ("inject", ("a", "b"))
    assert study(models=("a", "a")).next_step() is None
