"""A cell makes the calls of an experiment, writes records with the claims beside them, and is kept."""

import math

import pytest

import layerscope as ls
from layerscope.recipes.claims import Claim, Statistic
from layerscope.recipes.experiment_run import ExperimentRun, sentence
from layerscope.recipes.recipe import Experiment, Profile
from tests.helpers.models import save_random

EXPERIMENT = Experiment.model_validate(
    {
        "name": "fig0",
        "title": "How alike the layers are",
        "where": "section 1, figure 0",
        "over": {"model": "$models", "task": "$tasks"},
        "given": {"rows": {"task": "$task", "pool": "mean", "limit": "$limit"}},
        "calls": [
            {"name": "hidden", "call": "extract", "with": {"model": "$model", "**": "$rows"}, "shown": False},
            {"name": "alike", "call": "compare", "with": {"a": "$hidden", "measure": ["cka_debiased"], "ci": 0.95}},
        ],
    }
)
CLAIM = Claim(
    name="the diagonal is one",
    paper="p",
    experiment="fig0",
    where="section 1",
    says="A layer is like itself.",
    about="alike",
    statistic="diagonal",
    options={"of": "alike.cka_debiased", "layers": [0, 1]},
    above=0.99,
    refuted="It is not.",
)


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    data = tmp_path_factory.mktemp("words")
    for split, count in (("train", 48), ("validation", 60)):
        rows = [f"the {'file' if i % 2 else 'list'} is {i},{'file' if i % 2 else 'list'}" for i in range(count)]
        (data / f"{split}.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    return (
        save_random(tmp_path_factory.mktemp("model"), "bert"),
        save_random(tmp_path_factory.mktemp("other"), "bert", seed=1),
        data,
    )


def cell(folders, **changes):
    model, other, data = folders
    settings = {"limit": 50, "training": {"epochs": 3}, "unused": 1, **changes.pop("settings", {})}
    profile = Profile.model_validate(
        {
            "models": {"one": {"source": str(model), "training": {"epochs": 1}}, "two": str(other)},
            "tasks": [str(data)],
            "lists": {"twins": ["one"]},
            "settings": settings,
        }
    )
    given = {"experiment": EXPERIMENT, "chosen": {"model": "one", "task": str(data)}, "claims": (CLAIM,), **changes}
    return ExperimentRun("p", profile=profile, **given)


def test_a_cell_leaves_records_with_the_claims_beside_them(folders):
    own = cell(folders)
    folder = own.produce()
    assert own.find() == folder
    said = own.statistics(folder)["the diagonal is one"]
    assert said.value == pytest.approx(1)
    record = ls.read_record(own.records(folder)[0])
    assert [path.name for path in own.records(folder)] == ["alike"]
    assert set(record.tables) == {"cka_debiased"}
    assert record.findings[0].text.startswith(
        "Claim: A layer is like itself. Holds: similarity 1 (1 to 1), above 0.99 is asked"
    )
    assert record.title.startswith("Section 1, figure 0. How alike the layers are: one, ")
    alone = ls.compare(
        ls.extract(str(folders[0]), str(folders[2]), pool="mean", limit=50), measure="cka_debiased", ci=0.95
    )
    assert record.tables["cka_debiased"]["value"].tolist() == alone.frame["value"].tolist()  # as a user would have it


def test_everything_that_decides_the_result_is_in_the_key(folders):
    key = cell(folders).key
    assert cell(folders).key == key
    assert cell(folders, settings={"unused": 2}).key == key
    assert cell(folders, settings={"limit": 49}).key != key
    assert cell(folders, chosen={"model": "two", "task": str(folders[2])}).key != key
    assert cell(folders, claims=()).key != key
    call = EXPERIMENT.calls[1].model_copy(update={"arguments": {"a": "$hidden"}})
    assert cell(folders, experiment=EXPERIMENT.model_copy(update={"calls": (EXPERIMENT.calls[0], call)})).key != key


def test_what_calls_can_refer_to(folders):
    values = cell(folders).values()
    assert values["model"] == str(folders[0])
    assert values["models"] == [str(folders[0]), str(folders[1])]
    assert values["training"] == {"epochs": 1}  # the model's own
    both = cell(folders, chosen={"pair": ["one", "two"], "task": "x"}).values()["trainings"]
    assert both == [{"epochs": 1}, {"epochs": 3}]
    assert values["untrained"] == [f"random:{folders[0]}"]
    assert values["rows"] == {"task": str(folders[2]), "pool": "mean", "limit": 50}


def test_a_cell_says_what_it_is_of(folders):
    own = cell(folders, chosen={"pair": ["one", "two"], "task": "sst2", "seed": 3})
    assert own.name == "p fig0 (one and two, sst2, seed 3)"
    assert own.subject == "one and two"
    assert cell(folders, chosen={"task": "sst2"}).subject == "all models"


def test_a_pair_of_one_model_decides_no_claim_about_two(folders):
    pair = EXPERIMENT.model_copy(
        update={"calls": (EXPERIMENT.calls[1].model_copy(update={"arguments": {"a": "$pair.0", "b": "$pair.1"}}),)}
    )
    for chosen, model in (("one", "one"), ("one", "same")):
        own = cell(folders, experiment=pair, chosen={"pair": [chosen, model], "task": str(folders[2])})
        own.profile.models["same"] = own.profile.models["one"]
        assert own._decided(CLAIM, {}).reason == f"it is about two models, and {folders[0]} was given as both"


def test_sentences():
    assert sentence(CLAIM, Statistic.missing("no layers")).endswith("Not testable: no layers.")
    said = sentence(CLAIM, Statistic(0.5, 0.4, 0.6, note="n"))
    assert said == (
        "Claim: A layer is like itself. Does not hold: similarity 0.5 (0.4 to 0.6), above 0.99 is asked; n. Refuted "
        "if: It is not."
    )
    assert "Undecided: similarity 0.5 (no interval)" in sentence(CLAIM, Statistic(0.5))
    numbered = CLAIM.model_copy(update={"number": "0.97 on RTE"})
    assert sentence(numbered, Statistic(0.5)).endswith("Refuted if: It is not. The paper's number: 0.97 on RTE.")
    assert math.isnan(Statistic(0.5).low)


def test_a_split_that_no_recipe_uses_need_not_be_there(folders, tmp_path):
    for name in ("train", "validation"):
        (tmp_path / f"{name}.csv").write_bytes((folders[2] / f"{name}.csv").read_bytes())
    (tmp_path / "test.csv").write_text("text,label\nthe file,file\n")
    own = cell(folders, chosen={"model": "one", "task": str(tmp_path)})
    assert set(own.spec()["values"]["task"]["splits"]) == {"train", "validation"}


def test_models_are_opened_in_the_float_type_that_is_asked_for(folders):
    own = cell(folders, dtype="bfloat16", device="cpu")
    assert own.key != cell(folders).key
    assert cell(folders, device="cpu").key == cell(folders).key  # a device changes results by rounding only
    record = ls.read_record(own.records(own.produce())[0])
    model = ls.load(folders[0], dtype="bfloat16")
    alone = ls.compare(ls.extract(model, str(folders[2]), pool="mean", limit=50), measure="cka_debiased", ci=0.95)
    assert record.tables["cka_debiased"]["value"].tolist() == alone.frame["value"].tolist()
    usual = ls.read_record(cell(folders).records(cell(folders).produce())[0])
    assert record.tables["cka_debiased"]["value"].tolist() != usual.tables["cka_debiased"]["value"].tolist()


def test_models_in_lists_pairs_and_settings_are_opened_too(folders):
    pair = EXPERIMENT.model_copy(
        update={
            "calls": (
                EXPERIMENT.calls[0].model_copy(update={"arguments": {"model": "$pair.0", "**": "$rows"}}),
                EXPERIMENT.calls[1].model_copy(update={"arguments": {"a": ["*$models", "*$untrained"]}}),
            ),
            "given": {"rows": {"model": "$pair.1"}},
        }
    )
    own = cell(folders, experiment=pair, chosen={"pair": ["one", "two"]}, dtype="bfloat16")
    values = own._opened(own.values())
    opened = [*values["pair"], *values["models"], *values["untrained"], values["rows"]["model"]]
    assert {str(model.network.dtype) for model in opened} == {"torch.bfloat16"}
    assert [model.name for model in values["untrained"]] == [f"random:{folders[0]}"]
    assert values["pair"][0] is values["models"][0]
    assert values["twins"] == [str(folders[0])]  # nothing refers to it
