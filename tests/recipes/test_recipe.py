"""Recipes: every call is one that a user could make, and everything that the papers did is there."""

import inspect
from pathlib import Path

import pytest

import layerscope as ls
from layerscope.errors import LayerscopeError
from layerscope.recipes.claims import claims
from layerscope.recipes.experiment_run import TRAININGS, UNTRAINED, ExperimentRun
from layerscope.recipes.layout import Assembly
from layerscope.recipes.paper_page import numbers_in
from layerscope.recipes.recipe import Call, Profile, function, listed, papers, read_recipe, references, resolved
from layerscope.tuning.strategy import middle, of_preset

PROFILES = [(paper, profile) for paper in papers() for profile in ("paper", "offline", "smoke")]
# Every figure and table with results of an experiment.
EXPERIMENTS = {
    "phang2021": ["fig1", "fig2", "fig3", "fig4", "fig5", "fig6", "fig7"],
    "wu2020": [*(f"fig{k}" for k in range(1, 11)), "table1"],
    "ren2023": ["fig2", "fig3", "fig4", "fig5", "fig6", "fig7", "table3", "table4", "table5", "norms"],
    "xie2022": [*(f"fig{k}" for k in range(3, 18)), "table1", "table2", *(f"table{k}" for k in range(6, 13))],
    # A benchmark: its experiments are tests, by their own names.
    "resi2025": [
        *("accuracy_correlation", "output_correlation", "label_randomization", "shortcut_affinity", "augmentation"),
        *("layer_monotonicity", "table4"),
    ],
}


# Every number in the papers, and those that have no experiment: docs/howto/reproduce.md says why.
NUMBERS = {"phang2021": (7, 0), "wu2020": (10, 1), "ren2023": (8, 5), "xie2022": (17, 12)}
LEFT_OUT = {
    "ren2023": {"fig1", "fig8", "table1", "table2"},
    "xie2022": {"fig1", "fig2", "table3", "table4", "table5"},
}


@pytest.mark.parametrize("paper", NUMBERS)
def test_what_is_left_out_is_named_with_its_reason(paper):
    figures, tables = NUMBERS[paper]
    every = {f"fig{k + 1}" for k in range(figures)} | {f"table{k + 1}" for k in range(tables)}
    recipe = read_recipe(paper)
    assert every - {*recipe.figures, *recipe.tables} == LEFT_OUT.get(paper, set())
    page = (Path(__file__).parents[2] / "docs" / "howto" / "reproduce.md").read_text(encoding="utf-8")
    section = page.split("## What is left out")[1].split("##")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if "`" in line]
    named = {
        number: why
        for own, numbers, why in (row for row in rows if len(row) == 3)
        if own == f"`{paper}`"
        for number in numbers_in(numbers)
    }
    assert set(named) == LEFT_OUT.get(paper, set())
    assert all(len(why) > 20 for why in named.values())


def test_all_papers_with_every_figure_and_table():
    assert papers() == tuple(sorted(EXPERIMENTS))
    for paper, names in EXPERIMENTS.items():
        recipe = read_recipe(paper)
        known = {n for own, e in recipe.experiments.items() for n in (own, *e.also)}
        assert known - {"together"} == set(names)
        assert {*recipe.figures, *recipe.tables} == set(names)  # each is put together, too
        assert {e.name for e in recipe.chosen(names)} == set(recipe.experiments)


@pytest.mark.parametrize(("paper", "profile"), PROFILES)
def test_calls_are_public_functions_with_arguments_that_they_take(paper, profile):
    recipe = read_recipe(paper)
    for experiment in recipe.chosen(None):
        chosen = next(experiment.combinations(recipe.profile(profile)))
        cell = ExperimentRun(paper, experiment, chosen, recipe.profile(profile))
        values = cell.values()
        assert not {call.name for call in experiment.calls} & set(values), "a call hides a setting"
        for call in experiment.calls:
            made = call.made(values, dict)
            for given in made if call.each else [made]:
                inspect.signature(function(call.call)).bind(**given)
            values[call.name] = [Anything() for _ in made] if call.each else Anything()


class Anything:
    def __getattr__(self, name):
        return self


@pytest.mark.parametrize("paper", papers())
def test_profiles_say_everything_that_is_asked_for(paper):
    recipe = read_recipe(paper)
    asked = {name for e in recipe.experiments.values() for name in e.asked - {c.name for c in e.calls} - set(e.given)}
    asked |= {name for claim in claims() if claim.paper == paper for name in references(claim.options)}
    for profile in recipe.profiles.values():
        known = {"models", "tasks", "seeds", "model", "task", "corpus", "pair", "couple", "seed", TRAININGS, UNTRAINED}
        assert asked <= known | set(profile.settings) | set(profile.lists)
        models = {part for name, v in profile.lists.items() if name not in ("corpora", "resampled") for part in flat(v)}
        assert models <= set(profile.models)


def flat(values):
    return [part for value in values for part in (value if isinstance(value, list) else [value])]


def test_experiments_are_chosen_in_the_papers_order_by_any_of_their_names():
    recipe = read_recipe("phang2021")
    assert [e.name for e in recipe.chosen("fig4, fig6")] == ["fig1", "fig4"]
    with pytest.raises(LayerscopeError, match="experiment of phang2021 'fig9'"):
        recipe.chosen(["fig9"])
    with pytest.raises(LayerscopeError, match=r"paper 'phang2020'.*phang2021"):
        read_recipe("phang2020")
    with pytest.raises(LayerscopeError, match="profile"):
        recipe.profile("laptop")


@pytest.mark.parametrize("paper", papers())
def test_layouts_name_tables_that_there_are(paper):
    recipe = read_recipe(paper)
    for number, layout in {**recipe.figures, **recipe.tables}.items():
        experiment = recipe.experiments[layout.experiment]
        calls = {call.name for call in experiment.calls if call.shown}
        if number in recipe.figures:
            of = [mark.of for mark in layout.marks] + [mark.beside for mark in layout.marks if mark.beside]
            sides = [side for side in (layout.rows, layout.columns) if side is not None]
            assert all(side in experiment.over for side in sides if isinstance(side, str)), number
            lists = {name: values for side in sides if isinstance(side, dict) for name, values in side.items()}
        else:
            of, lists = list(layout.of.values()) if isinstance(layout.of, dict) else [layout.of], {}
            assert set(layout.across) & set(experiment.over), number
        for table in of:
            filled = [table.replace(f"{{{name}}}", str(v)) for name, vs in lists.items() for v in values_of(vs)] or [
                table
            ]
            assert {part.partition(".")[0] for part in filled} <= calls, number
        assert layout.statement.endswith("."), number
        assert {*layout.only, *layout.besides} <= set(experiment.over), number


def test_rens_figures_6_and_7_have_the_papers_tasks_and_panels():
    figures = read_recipe("ren2023").figures
    states, attention = ["before", "after"], ["attention_before", "attention_after"]
    assert list(figures["fig7"].rows["what"].values()) == [*states, *attention]
    assert list(figures["fig6"].rows["what"].values()) == ["after", *attention]
    for name in ("paper", "offline"):
        profile = read_recipe("ren2023").profile(name).model_dump()
        assert taken("ren2023", "fig7", "task", profile) == ["mnli"]
        assert sorted(taken("ren2023", "fig6", "task", profile)) == ["mrpc", "sst2"]
    for number in ("fig6", "fig7"):  # without the paper's tasks, what there is
        assert taken("ren2023", number, "task", {"models": {}, "tasks": ["pydocs", "cola"]}) == ["pydocs", "cola"]


def test_rens_invertible_network_has_both_starts_in_every_figure_of_section_5():
    """The profile `paper` has the paper's own alone: figure 2 takes 300 pairs of 13 layers on three tasks."""
    recipe = read_recipe("ren2023")
    starts = ["inn start=plain", "inn start=linear"]
    assert recipe.profile("offline").settings["section5"] == ["linear", *starts]
    assert recipe.profile("paper").settings["section5"] == ["linear", starts[0]]
    for number in ("fig2", "fig3", "fig4", "fig5", "fig6", "fig7"):
        experiment = recipe.experiments[recipe.figures[number].experiment]
        studies = [call for call in experiment.calls if call.call == "alignment_study"]
        assert studies
        assert {call.arguments["methods"] for call in studies} == {"$section5"}


SISTERS = [("fig3", "fig9"), ("fig4", "fig10"), ("table6", "table11"), ("table8", "table12")]


@pytest.mark.parametrize("sisters", SISTERS)
@pytest.mark.parametrize("names", [["roberta", "deberta"], ["bert", "roberta", "minilm"], ["bert"], ["a", "b", "c"]])
def test_every_model_is_in_one_of_two_sister_figures_of_xie(sisters, names):
    """RoBERTa has figure 4 and table 6 where it is there, and else the first model; all others are in figure 10."""
    first, second = (taken("xie2022", number, "model", {"models": dict.fromkeys(names, "m")}) for number in sisters)
    assert first == ["roberta" if "roberta" in names else names[0]]
    assert sorted(first + second) == sorted(names)


@pytest.mark.parametrize("sisters", [("fig6", "fig15"), ("fig7", "fig16")])
def test_no_task_is_in_two_sister_figures_of_xie(sisters):
    every = {
        ("sst2", "mnli"): (["sst2"], ["mnli"]),
        ("mnli",): ([], ["mnli"]),
        ("pydocs",): (["pydocs"], []),
        ("qqp", "qnli"): (["qqp"], ["qnli"]),
    }
    for tasks, wanted in every.items():
        profile = {"models": {}, "lists": {"resampled": tasks}}
        assert tuple(taken("xie2022", number, "task", profile) for number in sisters) == wanted


@pytest.mark.parametrize("depth", [6, 12, 18, 24])
@pytest.mark.parametrize("number", ["table8", "table9", "table12"])
def test_the_middle_layers_rows_are_there_at_any_depth(number, depth):
    """What a study trains when no strategies are named, as in the profile `paper`."""
    rows = read_recipe("xie2022").tables[number].where["strategy"]
    assert set(middle(depth)) <= set(rows) <= set(of_preset("xie2022", depth))
    assert len(rows) == 12


def taken(paper, number, name, profile):
    """What a figure or table of a paper takes of what its experiment runs over."""
    recipe = read_recipe(paper)
    assembly = Assembly(recipe, Profile.model_validate(profile), recipe.chosen(None), [], {})
    return assembly._values(name, {**recipe.figures, **recipe.tables}[number])


def values_of(given):
    return given.values() if isinstance(given, dict) else [] if isinstance(given, str) else given


def test_a_call_is_made_for_each_value_and_its_results_are_a_list():
    call = Call.model_validate({"name": "n", "call": "tune", "each": {"task": "$tasks"}, "with": {"task": "$task"}})
    values = {"tasks": ["a", "b"]}
    values["n"] = call.made(values, lambda task: {"model": task * 2})
    assert resolved(["base", "*$n.model"], values) == ["base", "aa", "bb"]
    assert resolved("$n.0", values) == {"model": "aa"}


def test_references():
    values = {"a": [1, 2], "b": {"x": 3}, "c": "text"}
    assert resolved(["$a", "*$a", "$b.x", "$a.1", "plain"], values) == [[1, 2], 1, 2, 3, 2, "plain"]
    assert resolved({"k": "$c"}, values) == {"k": "text"}
    assert references([{"k": "$b.x"}, "*$a", "d"]) == {"a", "b"}
    call = Call.model_validate({"name": "n", "call": "tune", "with": {"y": 1, "**": ["$b", {"x": 4}]}})
    assert call.resolved(values) == {"y": 1, "x": 4}
    for wrong in ("$d", "$b.y", "$c._x", "$a.7"):
        with pytest.raises(LayerscopeError, match="A recipe asks for"):
            resolved(wrong, values)


def test_only_public_functions_can_be_called():
    assert function("tune") is ls.tune
    assert function("Truncation.together") is ls.Truncation.together
    for name in ("os", "Truncation.__init__", "Truncation.name", "__version__", "tune.none"):
        with pytest.raises(LayerscopeError, match="not a public function"):
            function(name)


def test_a_model_may_be_given_by_its_source_alone():
    profile = Profile.model_validate({"models": {"a": "x", "b": {"source": "y", "training": {"epochs": 1}}}})
    assert [m.source for m in profile.models.values()] == ["x", "y"]
    with pytest.raises(LayerscopeError, match="which the profile does not have"):
        profile.values("$pairs", "fig1: pair")
    assert listed("a, b") == listed(["a", "b"]) == ["a", "b"]
