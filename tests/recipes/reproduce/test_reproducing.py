"""`ls.reproduce`: records and a report in the paper's order, verdicts, and what is missing by name."""

import json

import pytest

import layerscope as ls
from layerscope.engine import jobs as mapping
from layerscope.recipes import reproduce
from layerscope.recipes.recipe import papers, read_recipe
from layerscope.recipes.reproduce import experiments
from tests.helpers.models import save_random


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """Two tiny models and some texts of two classes."""
    data = tmp_path_factory.mktemp("words")
    for split, count in (("train", 64), ("validation", 60)):
        rows = [f"the {'file' if i % 2 else 'list'} is {i},{'file' if i % 2 else 'list'}" for i in range(count)]
        (data / f"{split}.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    models = {name: str(save_random(tmp_path_factory.mktemp(name), "bert", seed=k)) for k, name in enumerate("ab")}
    return {"models": models, "tasks": [str(data)], "profile": "smoke"}


@pytest.mark.filterwarnings("ignore::layerscope.errors.LayerscopeWarning")
def test_records_report_and_verdicts(given, tmp_path):
    done = ls.reproduce("phang2021", only="fig4,fig3", **given, out=tmp_path / "out")
    assert done.missing == {}
    assert set(done.claims["verdict"]) <= {"holds", "does not hold", "undecided", "not testable"}
    per_model = done.claims[done.claims["claim"] == "the top sixth of the blocks can go"]
    assert [on.split(",")[0] for on in per_model["on"]] == ["a", "b"]
    assert per_model["note"].str.startswith("the tuned model has not learned the task (accuracy 0.").all()
    assert (per_model["verdict"] == "not testable").all()
    names = sorted(path.name for path in (tmp_path / "out").iterdir() if path.is_dir())
    assert [name.split("-")[1] for name in names if name[0].isdigit()] == ["fig3", "fig3", "fig4", "fig4"]
    curves = ls.read_record(tmp_path / "out" / names[0] / "curves")
    assert curves.findings[0].text.startswith("Claim: The topmost blocks can be cut off")
    page = (tmp_path / "out" / "report.html").read_text(encoding="utf-8")
    assert page.index("Claim: The topmost blocks can be cut off") < page.index("Claim: Most single blocks")


@pytest.mark.filterwarnings("ignore::layerscope.errors.LayerscopeWarning")
def test_what_another_sweep_has_done_has_the_names_of_this_one(given, tmp_path):
    for name in ("old", "new"):
        models = {name: given["models"]["a"]}
        ls.reproduce("ren2023", only="norms", **{**given, "models": models}, out=tmp_path / name)
    (record,) = (tmp_path / "new").glob("001-*/norms")
    assert ": new, " in ls.read_record(record).title
    assert ": old, " not in (tmp_path / "new" / "report.html").read_text(encoding="utf-8")


@pytest.mark.filterwarnings("ignore::layerscope.errors.LayerscopeWarning")
def test_what_is_done_is_not_done_again(given, tmp_path, monkeypatch):
    first = ls.reproduce("ren2023", only="norms", **given, out=tmp_path / "first")

    def refuse(*_):
        raise AssertionError("a job was run")

    monkeypatch.setattr(
        mapping,
        "ENGINES",
        {"local": type("Local", (), {"__init__": lambda *_: None, "run": lambda s, j: refuse() if j else iter(())})},
    )
    (tmp_path / "first" / "notes.txt").write_text("mine")
    fewer = {**given, "models": {"b": given["models"]["b"]}}
    ls.reproduce("ren2023", only="norms", **fewer, out=tmp_path / "first")
    left = sorted(path.name.split("-")[0] for path in (tmp_path / "first").iterdir())
    assert left == [
        "001",
        "claims",
        "figures",
        "index.html",
        "notes.txt",
        "report.html",
        "tables",
    ]  # what the earlier run wrote is gone, and no more
    again = ls.reproduce("ren2023", only="norms", **given, out=tmp_path / "second")
    assert again.missing == first.missing == {}


@pytest.mark.filterwarnings("ignore::layerscope.errors.LayerscopeWarning")
def test_a_failed_job_is_named_and_the_others_go_on(given, tmp_path, monkeypatch):
    norms = ls.nuclear_norm

    def failing(reps):
        if "random" not in reps.info["model"]:
            return norms(reps)
        raise ls.LayerscopeError("This one is broken.")

    monkeypatch.setattr(ls, "nuclear_norm", failing)
    models = {**given["models"], "c": f"random:{given['models']['a']}"}
    done = ls.reproduce(
        "ren2023", only="norms", **{**given, "models": models, "tasks": [*given["tasks"], "none"]}, out=tmp_path
    )
    assert set(done.missing) == {"none", f"ren2023 norms (c, {given['tasks'][0]})"}
    assert list(done.missing.values())[1] == "This one is broken."
    assert len([path for path in tmp_path.iterdir() if path.name[0].isdigit()]) == 2


def test_mistakes_are_answered_before_anything_runs(tmp_path):
    for wrong in ({"engine": "slurm"}, {"only": "fig99"}, {"only": []}, {"profile": "huge"}):
        with pytest.raises(ls.LayerscopeError):
            ls.reproduce("phang2021", **wrong, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_is_refused_before_anything_runs(given, tmp_path, monkeypatch):
    monkeypatch.setattr(reproduce, "map_jobs", lambda *_, **__: pytest.fail("jobs were run"))
    (tmp_path / "file").write_text("mine")
    for out in (tmp_path / "file", tmp_path / "file" / "out"):
        with pytest.raises(ls.LayerscopeError, match="cannot be written"):
            ls.reproduce("ren2023", only="norms", **given, out=out)
    (tmp_path / "claims").mkdir()
    (tmp_path / "claims" / "mine.txt").write_text("mine")
    with pytest.raises(ls.LayerscopeError, match="claims exists and does not hold"):
        ls.reproduce("ren2023", only="norms", **given, out=tmp_path)


def test_the_list_has_every_experiment(monkeypatch):
    monkeypatch.setattr(reproduce, "openable", lambda profile, chosen, *_: (profile, {"x": "not here"}))
    frame = experiments(profile="smoke")
    assert frame["paper"].nunique() == len(papers())
    assert len(frame) == sum(len(read_recipe(paper).experiments) for paper in papers())
    first = frame[frame["paper"] == "phang2021"].iloc[0]
    assert first["experiment"] == "fig1, fig2, fig5, fig6"
    assert first["needs"] == "model: bert; task: pydocs"
    needs = {(row.paper, row.experiment.split(",")[0]): row.needs for row in frame.itertuples()}
    assert needs["wu2020", "fig1"] == "models: bert-s0, bert-s1; corpus: pydocs"  # each of its jobs takes them all
    assert needs["wu2020", "fig2"] == "models: bert-s0; corpus: pydocs"
    assert needs["ren2023", "fig2"] == "models: s0, s1; task: pydocs"
    assert (first["jobs"], first["claims"], first["not here"]) == (1, 7, "x")
    assert json.dumps(frame.to_dict("records"))


def test_what_is_not_here_is_listed_with_what_it_needs(given):
    """Whoever has nothing yet asks what there is to fetch."""
    row = experiments("phang2021", only="fig1", **{**given, "models": "a=/none", "tasks": "no-such-task"}).iloc[0]
    assert (row["needs"], row["not here"]) == ("model: a; task: no-such-task", "no-such-task, a")
    assert (row["jobs"], row["time"]) == (0, "0 s")
    every = experiments("wu2020", only="fig1", **{**given, "models": "a=/none", "tasks": "pydocs"}).iloc[0]
    assert (every["needs"], every["not here"], every["jobs"]) == ("models: a; corpus: pydocs", "a", 0)


def test_the_list_tries_to_open_each_task_once(given, monkeypatch):
    """Without a network every try of the hub takes half a minute."""
    asked = []

    def refuse(task):
        asked.append(task)
        raise ls.LayerscopeError(f"{task} could not be fetched.")

    monkeypatch.setattr(reproduce, "open_task", refuse)
    frame = experiments(**{**given, "tasks": "qqp"})
    assert asked.count("qqp") == 1
    assert (frame["not here"].str.contains("qqp")).sum() > 4


@pytest.mark.slow
@pytest.mark.parametrize("paper", papers())
@pytest.mark.filterwarnings("ignore::layerscope.errors.LayerscopeWarning")
def test_every_paper_runs_in_seconds(paper, tmp_path):
    done = ls.reproduce(paper, profile="smoke", out=tmp_path / "out")
    assert done.missing == {}
    assert set(done.claims["experiment"]) <= set(read_recipe(paper).experiments)
    assert len(done.claims) or paper == "resi2025"  # which has tests, and no claims
    assert (tmp_path / "out" / "report.html").is_file()
    recipe, page = read_recipe(paper), (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    for number in recipe.figures:
        for ending in ("pdf", "png"):
            assert (tmp_path / "out" / "figures" / f"{number}.{ending}").stat().st_size > 2000
        assert f'src="figures/{number}.png"' in page
    for number in recipe.tables:
        for ending in ("csv", "tex", "md"):
            assert (tmp_path / "out" / "tables" / f"{number}.{ending}").is_file()
        assert f'id="{number}"' in page
        assert set(done.tables()[number]) >= {"mean", "deviation", "n", "reason"}
    assert [f.title for f in done.figures()[2:]][: len(recipe.figures)] == [
        f.title for f in done.paper_figures.values()
    ]


def test_a_float_type_or_device_that_cannot_be_had_is_refused_at_once(given):
    with pytest.raises(ls.LayerscopeError, match="no float type 'half-baked'"):
        ls.reproduce("ren2023", dtype="half-baked", **given)
    with pytest.raises(ls.LayerscopeError, match="device 'moon' cannot be used here"):
        experiments("ren2023", device="moon", **given)


def test_one_gpu_by_its_number_is_for_one_process(given, monkeypatch):
    monkeypatch.setattr(reproduce, "check_opening", lambda *_: None)
    with pytest.raises(ls.LayerscopeError, match="cuda:1 is one GPU, and --engine processes:2 spreads jobs over all"):
        ls.reproduce("ren2023", device="cuda:1", engine="processes:2", **given)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::layerscope.errors.LayerscopeWarning")
def test_workers_open_models_in_the_same_float_type(given, tmp_path, monkeypatch):
    tables = []
    for engine in ("local", "processes:1"):
        monkeypatch.setenv("LAYERSCOPE_HOME", str(tmp_path / f"store of {engine[:5]}"))
        out = tmp_path / engine[:5]
        done = ls.reproduce("ren2023", only="norms", **given, dtype="bfloat16", device="cpu", engine=engine, out=out)
        assert done.missing == {}
        tables.append(ls.read_record(next(out.glob("001-norms-*/norms"))).tables["norms"])
    assert tables[0].equals(tables[1])
    usual = ls.reproduce("ren2023", only="norms", **given, out=tmp_path / "usual").folder
    assert not tables[0].equals(ls.read_record(next(usual.glob("001-norms-*/norms"))).tables["norms"])
