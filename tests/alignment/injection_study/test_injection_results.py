"""What an injection study draws and says."""

import pandas
import pytest

from layerscope.alignment.injection_study import InjectionStudy

PROVENANCE = {"models": [], "data": {}, "settings": {}, "versions": {}}


@pytest.mark.parametrize(("layers", "kinds"), [((3, 4), ["curve", "table"]), ((4,), ["bars", "table"])])
def test_what_is_drawn_of_an_injection(layers, kinds, tmp_path):
    about = {"source_score": 0.9, "target_score": 0.8, "majority": 0.5, "metric": "accuracy", "n": 500}
    about |= {"source_low": 0.87, "source_high": 0.92, "target_low": 0.76, "target_high": 0.83}
    about |= {"lost": 0.1, "lost_low": 0.06, "lost_high": 0.14}
    rows = [
        {"layer": layer, "source_layer": layer, "method": method, "score": 0.7, "low": 0.66, "high": 0.74, **about}
        for layer in layers
        for method in ("identity", "random label")
    ]
    study = InjectionStudy(pandas.DataFrame(rows), PROVENANCE)
    assert [figure.kind for figure in study.figures()] == kinds
    assert dict(study.figures()[0].references) == {
        "source alone": 0.9,
        "target alone": 0.8,
        "most frequent class": 0.5,
    }
    first = study.findings()[0]
    assert first.text == (
        "With its layer 4 replaced by the source's, mapped, the target has accuracy: identity 0.700 (0.660 to 0.740), "
        "random label 0.700 (0.660 to 0.740); on its own states it has 0.800 (0.760 to 0.830)."
    )
    assert "identity, the best of 1 methods: something is lost, n = 500" in str(first)
    assert len(study.findings()) == len(layers)
    study.plot(tmp_path / "injection.png")
