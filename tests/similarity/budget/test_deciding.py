"""One pass over the texts, whatever the route, and the same numbers on every route."""

import sys
import time
from dataclasses import replace

import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.similarity import budget
from layerscope.similarity.execution_plan import GIB, ExecutionPlan, Groups, Plan
from layerscope.similarity.layer_sources import Streamed
from layerscope.store import Store
from tests.helpers.models import random_model

SHORT = 1e-4  # GiB: above what the rows of 60 texts take (38 kB), below the products of all layers (123 kB)


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "corpus.txt"
    words = ["file", "list", "value", "return", "object", "string"]
    path.write_text("\n".join(f"the {words[i % 6]} {words[i % 5]} is {i} {'and ' * (i % 4)}" for i in range(60)) + "\n")
    return ls.task(path)


def seen_by(*models):
    """How many texts pass the embeddings of some models."""
    counts = [0] * len(models)

    def hook(k):
        def count(_, args, __):
            counts[k] += len(args[0])

        return count

    for k, each in enumerate(models):
        each.network.get_input_embeddings().register_forward_hook(hook(k))
    return counts


@pytest.mark.parametrize("ci", [None, 0.9])
def test_one_pass_where_rows_fit_and_products_do_not(ci, texts, caplog):
    one = random_model("bert")
    expected = ls.compare(one, task=texts, pool="mean", measure=["cka", "neuron"], ci=ci)
    counts = seen_by(one)
    with caplog.at_level("INFO", "layerscope"):
        found = ls.compare(one, task=texts, pool="mean", measure=["cka", "neuron"], ci=ci, memory=SHORT)
    assert counts == [60]
    assert "Plan: rows in the host's memory (37.5 KiB)" in caplog.text
    assert "1 pass over the texts, at most" in caplog.text
    assert not [record for record in caplog.records if record.levelname == "WARNING"]
    assert not list(Store().entries())
    for name, similarity in expected.items():
        np.testing.assert_allclose(found[name].values, similarity.values, rtol=1e-5)
        if ci:
            np.testing.assert_allclose(found[name].low, similarity.low, atol=1e-5)
        assert found[name].provenance["models"] == similarity.provenance["models"]
        assert found[name].provenance["settings"] == similarity.provenance["settings"]


def test_one_pass_through_the_store_where_memory_is_too_short_for_rows(texts, caplog):
    first, second = random_model("bert"), random_model("gpt2")
    expected = ls.compare(first, second, task=texts, pool="words")
    counts = seen_by(first, second)
    with caplog.at_level("INFO", "layerscope"):
        found = ls.compare(first, second, task=texts, pool="words", memory=1e-5)
    assert counts == [60, 60]
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-5)
    assert "Plan: rows in the store, memory-mapped" in caplog.text


@pytest.mark.parametrize("ci", [None, 0.9])
def test_several_passes_are_the_last_resort_and_say_why(ci, texts, caplog, monkeypatch):
    one = random_model("bert")
    expected = ls.compare(one, task=texts, pool="mean", ci=ci)
    monkeypatch.setattr(budget, "_free_on_disk", lambda _: 0)
    counts = seen_by(one)
    with caplog.at_level("WARNING", "layerscope"):
        found = ls.compare(one, task=texts, pool="mean", ci=ci, memory=3e-5)
    assert counts[0] > 60
    assert counts[0] % 60 == 0
    assert f"{counts[0] // 60} passes over the texts: the products of all pairs of layers take" in caplog.text
    assert "0 KiB for them on the disk" in caplog.text
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-5)
    if ci:
        np.testing.assert_allclose(found.high, expected.high, atol=1e-5)


ROUTES = {
    "moments": ("moments", "host", GIB),
    "moments in several passes": ("moments", "host", 40_000),
    "rows": ("rows", "host", GIB),
    "products of rows in tiles": ("rows", "host", 40_000),
    "rows on the models' device": ("rows", "device", GIB),
    "store": ("rows", "store", GIB),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("texts_used", [20, 60])  # below the width there are Gram matrices
def test_every_route_gives_what_float64_gives(dtype, texts_used, texts, monkeypatch):
    one = random_model("bert", num_hidden_layers=2)
    one.network.to(dtype)
    names = ["cka", "cka_debiased", "procrustes", "neuron", "cosine"]
    reading = {"pool": "last", "limit": texts_used}
    rows = ls.extract(one, texts, store=False, **reading)
    expected = {
        name: [[ls.measure(name)(rows[i].double(), rows[j].double()) for j in (1, 2)] for i in (1, 2)] for name in names
    }
    for keep, where, room in ROUTES.values():
        route = ExecutionPlan(keep, where, 0, room, 1, False, 0.0, 0.0)
        monkeypatch.setattr(budget, "choose_plan", lambda *_, route=route: route)
        for name in names:
            found = ls.compare(one, task=texts, measure=name, **reading)
            np.testing.assert_allclose(found.values[1:, 1:], expected[name], rtol=1e-5, err_msg=f"{name} {route}")


@pytest.fixture
def some_long_words(tmp_path):
    """Sixty texts; the first word of a few is longer than eight tokens, so that no word of theirs is read."""
    path = tmp_path / "words.txt"
    lines = (f"{'donaudampfschiff' * 3 if i % 9 == 0 else 'the'} file {i} is a list" for i in range(60))
    path.write_text("\n".join(lines) + "\n")
    return ls.task(path)


@pytest.mark.parametrize("name", ROUTES)
def test_every_route_gives_the_same_intervals_where_texts_have_no_row(name, some_long_words, monkeypatch):
    one = random_model("bert", num_hidden_layers=2)
    reading = {"task": some_long_words, "pool": "words", "max_length": 8, "ci": 0.9, "measure": "procrustes"}
    expected = ls.compare(one, **reading)
    keep, where, room = ROUTES[name]
    monkeypatch.setattr(budget, "choose_plan", lambda *_: ExecutionPlan(keep, where, 0, room, 1, False, 0.0, 0.0))
    found = ls.compare(one, **reading)
    np.testing.assert_allclose(found.low, expected.low, atol=1e-6)
    np.testing.assert_allclose(found.high, expected.high, atol=1e-6)


@pytest.mark.parametrize("name", ROUTES)
def test_every_route_says_what_is_not_read(name, some_long_words, monkeypatch, caplog):
    keep, where, room = ROUTES[name]
    monkeypatch.setattr(budget, "choose_plan", lambda *_: ExecutionPlan(keep, where, 0, room, 1, False, 0.0, 0.0))
    ls.compare(random_model("bert", num_hidden_layers=2), task=some_long_words, pool="words", max_length=8)
    said = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert said == [
        "52 of 60 texts of words are cut off at 8 tokens.",
        "87 words are left out: they are cut off or have no token.",
    ]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_route_on_a_gpu_gives_what_float64_gives(dtype, texts, monkeypatch):
    one = random_model("bert", num_hidden_layers=2)
    one.network.to("cuda", dtype)
    for used in (20, 60):
        reading = {"pool": "last", "limit": used}
        rows = ls.extract(one, texts, store=False, **reading)
        for keep, where, room in ROUTES.values():
            route = ExecutionPlan(keep, where, 0, room, 1, False, 0.0, 0.0)
            monkeypatch.setattr(budget, "choose_plan", lambda *_, route=route: route)
            for name in ("cka", "cka_debiased", "procrustes"):
                for ci in (None, 0.9) if used == 60 else (None,):
                    found = ls.compare(one, task=texts, measure=name, ci=ci, **reading).values[1, 2]
                    expected = ls.measure(name)(rows[1].double(), rows[2].double())
                    assert found == pytest.approx(expected, rel=1e-5), (name, route, ci)


def test_rows_of_bfloat16_models_are_kept_as_they_are(texts):
    one = random_model("bert")
    one.network.bfloat16()
    streamed = Streamed(Groups(one, None), None, texts, None, None, {"pool": "cls"})
    kept = streamed.with_rows("host")
    exact = ls.extract(one, texts, store=False)
    for view, (_, layer) in enumerate(kept.views):
        assert kept.rows(view).dtype == torch.bfloat16
        assert torch.equal(kept.rows(view).float(), exact[layer])


@pytest.mark.parametrize(("pool", "rows"), [("cls", 60), ("words", None), ("tokens", None)])
def test_rows_and_tokens_are_judged_before_anything_runs(pool, rows, texts):
    one = random_model("bert")
    streamed = Streamed(Groups(one, None), None, texts, None, None, {"pool": pool})
    plan = Plan((ls.measure("cka"), ls.measure("svcca")), {}, groups=20)
    facts = budget.workload_of(plan, streamed, shuffled=False)
    exact = ls.extract(one, texts, pool=pool, store=False)
    assert len(exact) <= facts.rows <= 1.2 * len(exact)
    assert rows is None or facts.rows == rows
    assert (facts.primal, facts.dual, facts.groups, facts.row_measures) == (True, True, 20, False)
    lengths = [len(one.tokenizer(text)["input_ids"]) for text in streamed.examples.texts]
    assert facts.tokens == pytest.approx(sum(lengths), rel=0.1)
    blocks = one.network.base_model.encoder.layer
    assert facts.parameters == sum(p.numel() for p in blocks.parameters())


def test_a_pass_is_timed_on_its_first_batches(texts, monkeypatch):
    """A model that waits for a while in every batch takes as many whiles as there are batches."""
    one = random_model("bert")
    streamed = Streamed(Groups(one, None), None, texts, None, None, {"pool": "cls"})
    facts = budget.workload_of(Plan((ls.measure("cka"),), {}), streamed, shuffled=False)
    assert budget.pass_timer(streamed, facts) is None  # the texts are few
    monkeypatch.setattr(budget, "_WORTH", 0)
    monkeypatch.setattr(budget, "_BATCHES", 0.1)  # of 1,024 tokens: about ten texts
    counts = seen_by(one)
    one.network.get_input_embeddings().register_forward_hook(lambda *_: time.sleep(0.2))
    seconds = budget.pass_timer(streamed, replace(facts, tokens=100 * facts.tokens))()
    assert 10 <= counts[0] <= 24  # twice, the first of them a warm-up
    waited = 0.2 * 100 * 60 / (counts[0] / 2)  # once for a batch of so many texts, of 60 that are a hundred times more
    assert 0.8 * waited <= seconds <= 2 * waited


def test_measures_of_rows_and_shuffles_ask_for_rows(texts):
    streamed = Streamed(Groups(random_model("bert"), None), None, texts, None, None, {"pool": "cls"})
    rows = Plan((ls.measure("mutual_knn"),), {})
    assert budget.workload_of(rows, streamed, shuffled=False).row_measures
    assert not budget.workload_of(rows, streamed, shuffled=False).pairs
    assert budget.workload_of(Plan((ls.measure("cka"),), {}), streamed, shuffled=True).row_measures


def test_the_command_says_the_plan_and_what_it_took(texts, tmp_path, capsys, monkeypatch):
    from layerscope.cli import main
    from tests.helpers.models import save_random

    folder = save_random(tmp_path / "model", "bert")
    command = ["layerscope", "compare", folder, "--task", str(tmp_path / "corpus.txt"), "--verbose", "--memory", "1"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit, match="0"):
        main()
    said = capsys.readouterr().err
    assert "Plan: " in said
    assert "It took " in said
