"""What will run: other models in all lists, what is missing left out by name, every combination a cell."""

import numpy as np
import pytest

from layerscope.errors import LayerscopeError
from layerscope.recipes.recipe import Profile, read_recipe
from layerscope.recipes.reproduce import available, cells_of, changed

PROFILE = Profile.model_validate(
    {
        "models": {"a": {"source": "garden:bert-s0", "training": {"epochs": 1}}, "b": "garden:bert-s1"},
        "tasks": ["pydocs"],
        "lists": {
            "pairs": [["a", "b"]],
            "alone": ["a"],
            "corpora": ["pydocs"],
            "resampled": ["pydocs"],
            "tuned": ["a"],
        },
    }
)


def test_other_models_take_the_place_of_the_profiles_in_all_lists():
    new = changed(PROFILE, "x=garden:bert-s0, garden:gpt2-s0,y=folder", None, None)
    assert {name: model.source for name, model in new.models.items()} == {
        "x": "garden:bert-s0",
        "garden:gpt2-s0": "garden:gpt2-s0",
        "y": "folder",
    }
    assert new.models["x"].training == {"epochs": 1}  # the same model trains as before
    assert new.lists["pairs"] == (["x", "garden:gpt2-s0"], ["garden:gpt2-s0", "y"])
    assert new.lists["alone"] == ("x",)
    assert new.lists["tuned"] == ("x", "garden:gpt2-s0", "y")
    assert new.lists["corpora"] == ("pydocs",)
    assert changed(PROFILE, {"x": {"source": "garden:bert-s0", "training": {"epochs": 2}}}, None, None).models[
        "x"
    ].training == {"epochs": 2}
    rate = {"source": "z", "training": {"learning_rate": 1e-3}}
    assert changed(PROFILE, {"x": rate}, None, None).models["x"].training == {"learning_rate": 1e-3}
    assert changed(PROFILE, {"x": "s"}, None, None).lists["pairs"] == (["x", "x"],)


def test_tasks_and_seeds():
    new = changed(PROFILE, None, "sst2,mrpc", 2)
    assert new.tasks == new.lists["resampled"] == ("sst2", "mrpc")
    assert new.seeds == (0, 1)
    assert changed(PROFILE, None, None, [3, 4]).seeds == (3, 4)
    assert changed(PROFILE, None, None, np.int64(2)).seeds == (0, 1)
    assert changed(PROFILE, None, "sst2,sst2", np.array([3, 3])).seeds == (3,)  # the same twice is no more than once
    assert changed(PROFILE, None, "sst2,sst2", None).tasks == ("sst2",)
    none, no_seeds = "at least one is needed", "whole number"
    wrong_seeds = [({"seeds": seeds}, no_seeds) for seeds in ("0,1", 2.0, [0.5], [-1])]
    for wrong, said in (({"models": []}, none), ({"seeds": 0}, none), ({"seeds": []}, none), *wrong_seeds):
        with pytest.raises(LayerscopeError, match=said):
            changed(PROFILE, **{"models": None, "tasks": None, "seeds": None, **wrong})
    with pytest.raises(LayerscopeError, match="wrong at source"):
        changed(PROFILE, {"a": {"sauce": "b"}}, None, None)


def test_tasks_are_corpora_where_experiments_have_no_others():
    fig1, fig5, together = read_recipe("wu2020").chosen("fig1,fig5")
    assert changed(PROFILE, None, "my.conllu", None, [fig1]).lists["corpora"] == ("my.conllu",)
    both = changed(PROFILE, None, "sst2", None, [fig1, fig5])  # fig5 tunes on tasks and compares on corpora
    assert (both.tasks, both.lists["corpora"]) == (("sst2",), ("pydocs",))
    assert changed(PROFILE, None, "sst2", None, [together]).lists["corpora"] == ("pydocs",)


def test_two_models_of_one_name_are_refused():
    with pytest.raises(LayerscopeError, match="Two models are called x; give each a name of its own"):
        changed(PROFILE, "x=garden:bert-s0,x=garden:bert-s1", None, None)
    assert list(changed(PROFILE, "m,m", None, None).models) == ["m"]


def test_what_cannot_be_opened_is_left_out_by_name():
    fig1, fig7 = read_recipe("phang2021").chosen("fig1,fig7")
    asked = changed(PROFILE, {"a": "garden:bert-s0", "lost": "garden:bert-s9"}, ["pydocs", "no-such-task"], None)
    usable, missing = available(asked, [fig1, fig7])
    assert set(missing) == {"lost", "no-such-task"}
    assert (list(usable.models), usable.tasks, usable.lists["pairs"]) == (["a"], ("pydocs",), ())
    assert list(fig7.combinations(usable)) == []


def test_nothing_left_is_an_error():
    (fig1,) = read_recipe("phang2021").chosen("fig1")
    with pytest.raises(LayerscopeError, match=r"None of the models can be opened here: .*bert-s9"):
        available(changed(PROFILE, "garden:bert-s9", None, None), [fig1])
    with pytest.raises(LayerscopeError, match=r"None of the models can be opened here: .*bert-s9"):  # its own reason
        available(changed(PROFILE, "garden:bert-s9", ["no-such-task", "pydocs"], None), [fig1])
    with pytest.raises(LayerscopeError, match="None of the tasks can be opened here"):
        available(changed(PROFILE, None, "no-such-task", None), [fig1])


def test_models_that_no_experiment_asks_for_are_not_opened():
    asked = PROFILE.model_copy(update={"models": {**PROFILE.models, "lost": PROFILE.models["b"]}})
    (table1,) = read_recipe("wu2020").chosen("table1")
    broken = changed(asked, None, None, None).model_copy(
        update={
            "models": {"a": PROFILE.models["a"], "lost": PROFILE.models["a"].model_copy(update={"source": "/none"})}
        }
    )
    assert available(broken, [table1])[1] == {}


def test_every_combination_is_a_cell_in_the_papers_order():
    recipe = read_recipe("phang2021")
    cells = list(cells_of(recipe, recipe.chosen(None), changed(PROFILE, None, None, 2)))
    assert [(cell.experiment.name, cell.label) for cell in cells] == [
        *(("fig1", f"{model}, pydocs") for model in "ab"),
        *(("fig3", f"{model}, pydocs, seed {seed}") for model in "ab" for seed in range(2)),
        *(("fig4", f"{model}, pydocs, seed {seed}") for model in "ab" for seed in range(2)),
        ("fig7", "a and b, pydocs"),
    ]
    assert [claim.experiment for claim in cells[0].claims] == ["fig1"] * 7
