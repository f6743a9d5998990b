"""Patches: where they can be folded, what is solved, how they are judged, and what is refused by name."""

import re

import numpy as np
import pandas
import pytest
import torch

import layerscope as ls
from layerscope.cutting import patch as patches
from layerscope.cutting.cut import cut
from layerscope.cutting.patch import (
    NoPlaceError,
    Patches,
    Request,
    Variant,
    attention_place,
    block_place,
    gaps,
    head_place,
)
from layerscope.cutting.patch_texts import deal
from layerscope.cutting.plan import LayerPlan
from layerscope.errors import InputError
from layerscope.models.families import EXPERTS, WRITERS
from tests.helpers.data import (
    random_texts,
    running_task,
    scored_pairs,
    three_class_task,
    two_class_frame,
    two_class_task,
)
from tests.helpers.models import (
    CONFIGS,
    LANGUAGE_CONFIGS,
    WITHOUT_BLOCK_2,
    language_model,
    random_model,
    shared_classifier,
    shared_encoder,
    small_decoder,
)

UNLABELLED = {"text": random_texts(40, seed=9, least=4, most=12)}
ADDED = {"gpt2", "modernbert", "llama", "qwen3", "qwen2", "mistral", "phi3", "opt", "gpt_neox", "bloom"}
NORMED = {"bert", "roberta", "electra", "deberta", "deberta-v2", "distilbert", "openai-gpt", "gemma3_text", "olmo2"}


@pytest.mark.parametrize("family", [*CONFIGS, *LANGUAGE_CONFIGS])
def test_what_the_table_says_of_a_family_holds_in_its_network(family):
    model = language_model(family, "next") if family in LANGUAGE_CONFIGS else random_model(family)
    if family not in ADDED | NORMED:
        with pytest.raises(NoPlaceError, match=r"share their weights|is not known"):
            block_place(model, 2)
        return
    place = block_place(model, 2)
    assert place.elements == (family in NORMED)
    assert place.old.shape[0] == model.width
    assert place.transposed == (family == "gpt2")
    if family in NORMED:
        with pytest.raises(NoPlaceError, match="adds its attention to the state is not known"):
            attention_place(model, 2)
        return
    attention = attention_place(model, 2)
    assert attention.path == WRITERS[family].attention
    assert attention.old.shape[0] == model.width
    assert attention.transposed == place.transposed


def test_a_wrong_entry_of_the_table_is_found_out(monkeypatch):
    model = small_decoder()
    monkeypatch.setitem(WRITERS, "llama", patches.Writer("mlp.up_proj"))
    with pytest.raises(NoPlaceError, match="not added to the state unchanged"):
        block_place(model, 1)
    monkeypatch.setitem(WRITERS, "llama", patches.Writer("mlp.w2"))
    with pytest.raises(NoPlaceError, match=r"has no mlp\.w2"):
        block_place(model, 1)
    with pytest.raises(NoPlaceError, match="No block stands before the gap"):
        block_place(model, 0)
    monkeypatch.setitem(WRITERS, "llama", patches.Writer("mlp.down_proj", "self_attn.v_proj"))
    with pytest.raises(NoPlaceError, match=r"v_proj.*(not added to the state unchanged|not give states of its width)"):
        attention_place(model, 1)


def test_experts_are_refused_by_name():
    assert "qwen2_moe" in EXPERTS
    with pytest.raises(NoPlaceError, match=r"qwen2_moe.*mixture of experts"):
        block_place(language_model("qwen2_moe"), 1)


def test_gaps_are_what_lies_between_kept_blocks():
    assert gaps(LayerPlan([1, 2, 5, 6, 9]), 10) == [(2, 4), (6, 8), (9, 10)]
    assert gaps(LayerPlan([2, 3]), 3) == [(0, 1)]
    assert gaps(LayerPlan([1, 2, 3]), 3) == []


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_a_gap_is_solved_as_plain_least_squares_on_the_states_would(family):
    model = language_model(family)
    texts = deal(model, running_task(), max_length=16)
    place = block_place(model, 1)
    request = Request(Variant(LayerPlan([1, 4])), place, 3)
    (moments,) = patches.gathered(texts.solving, model, [request])
    fold = request.solved(moments, 1e-3, torch.float32)
    read, wanted = [], []
    hook = place.module.register_forward_hook(lambda m, args, out: read.append((args[0][0], out[0])))
    with torch.inference_mode():
        for item in texts.solving.encoded():
            ids = torch.as_tensor(item.ids)[None]
            states = model.network(input_ids=ids, output_hidden_states=True, use_cache=False).hidden_states
            wanted.append(states[3][0] - (states[1][0] - read[-1][1]))
    hook.remove()
    x, y = torch.cat([x for x, _ in read]).double(), torch.cat(wanted).double()
    assert moments.n == len(x)
    old = place.old.double()
    centre = x.mean(0) if place.constant else 0.0
    strength = 1e-3 * float((x - centre).square().sum()) / x.shape[1]
    left = torch.cat([torch.cat([x, torch.ones(len(x), 1)], 1), strength**0.5 * torch.eye(x.shape[1], x.shape[1] + 1)])
    left = left if place.constant else left[:, :-1]
    solution = torch.linalg.lstsq(left, torch.cat([y, strength**0.5 * old.T])).solution
    expected = solution[: x.shape[1]] if place.transposed else solution[: x.shape[1]].T
    torch.testing.assert_close(fold.weight.double(), expected, rtol=1e-4, atol=1e-5)
    if place.constant:
        torch.testing.assert_close(fold.bias.double(), solution[-1], rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
@pytest.mark.parametrize(("find", "block"), [(attention_place, 2), (block_place, 1), (attention_place, 1)])
def test_a_matrix_further_up_is_asked_for_what_is_missing_at_the_gap(family, find, block):
    """Without blocks 3 and 4: what the state after block 2 lacks of that after block 4, beside what it gives now."""
    model = language_model(family, depth=4)
    texts = deal(model, running_task(), max_length=16)
    place = find(model, block)
    request = Request(Variant(LayerPlan([1, 2])), place, 4, end=2)
    (moments,) = patches.gathered(texts.solving, model, [request])
    seen, missing, last = [], [], []
    hook = place.module.register_forward_hook(lambda m, args, out: seen.append((args[0][0], out[0])))
    before_norm = model.network.base_model.get_submodule(model.architecture.blocks)[-1].register_forward_hook(
        lambda m, args, out: last.append((out[0] if isinstance(out, tuple) else out)[0])
    )
    with torch.inference_mode():
        for item in texts.solving.encoded():
            ids = torch.as_tensor(item.ids)[None]
            states = model.network(input_ids=ids, output_hidden_states=True, use_cache=False).hidden_states
            missing.append(last[-1] - states[2][0])
    for handle in (hook, before_norm):
        handle.remove()
    read, given = (torch.cat(parts).double() for parts in zip(*seen, strict=True))
    x, y = read, given + torch.cat(missing).double()
    torch.testing.assert_close(moments.mean(0), x.mean(0), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(moments.mean(1), y.mean(0), rtol=1e-5, atol=1e-6)
    centred = [part - part.mean(0) for part in (y, x)]
    torch.testing.assert_close(moments.scatter(1, 0), centred[0].T @ centred[1], rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_more_matrices_are_solved_for_as_long_as_the_loss_falls(monkeypatch):
    model, data = ls.load("garden:gpt2-s0"), ls.task("pydocs", kind="text")
    texts = deal(model, data, limit=60, max_length=64)
    plan, found = LayerPlan.skipped(12, 6, 8), {}
    for reach, plans in ((1, 1), (6, 1), ("several", 2)):
        monkeypatch.setattr(patches, "_REACH", 6 if reach == "several" else reach)
        search = patches._Search(model, texts, [Variant(plan), Variant(LayerPlan.skipped(12, 9, 9))][:plans])
        search.run()
        found[reach] = search.variants[0]
    assert len(found[1].folds) == len(found["several"].folds) == 1
    paths = [(fold.block, fold.path) for fold in found[6].folds]
    order = [(block, path) for block in (5, 4, 3) for path in ("mlp.c_proj", "attn.c_proj")]
    assert paths == order[: len(paths)]
    assert len(paths) > 1
    both = [Variant(plan), found[1], found[6]]
    cut_loss, one, more = patches.losses(patches.answers(texts.choosing, model, both))[1:]
    assert more < one < cut_loss


def test_folds_are_installed_for_a_while_and_written_for_good():
    model = small_decoder()
    place = block_place(model, 1)
    before = place.module.weight.detach().clone()
    fold = patches.Fold(1, place.path, before + 1, None, 0.1, 0.0)
    with patches.installed(model, (fold,)):
        assert torch.equal(place.module.weight, before + 1)
    assert torch.equal(place.module.weight, before)
    plan = LayerPlan([3])
    smaller = cut(model, plan)
    patches.fold_into(ls.load(smaller), plan, (patches.Fold(3, place.path, before + 1, None, 0.1, 0.0),))
    assert torch.equal(smaller.model.layers[0].mlp.down_proj.weight, before + 1)


def test_a_truncated_classifier_answers_as_the_whole_one_without_labels(tmp_path):
    model, task = shared_classifier(), ls.task(pandas.DataFrame(UNLABELLED))
    plan = LayerPlan([1])
    texts = deal(model, task)
    smaller = cut(model, plan)
    found = patches.patch(model, plan, smaller, texts)
    (domain,) = found.domains
    assert found.applied
    assert domain.whole == pytest.approx(0, abs=1e-9)
    assert domain.patched < 0.7 * domain.cut
    assert "bert.pooler.dense of head" in str(found)
    folder = ls.save(smaller, tmp_path / "patched")
    opened = ls.load(folder)
    assert torch.equal(opened.network.bert.pooler.dense.weight, found.folds[0].weight)
    card = (folder / "README.md").read_text()
    assert "bert.pooler.dense of head, ridge" in card
    assert "and nothing was trained" in card
    assert "labels unused" in card
    again = Patches(model, [plan], texts).solved()[0]  # from the store
    assert torch.equal(again.folds[0].weight, found.folds[0].weight)
    assert str(again) == str(found)


def test_labels_change_nothing():
    model, frame = shared_classifier(), pandas.DataFrame(UNLABELLED)
    folds = []
    for seed in range(2):
        labels = np.random.default_rng(seed).integers(0, 2, len(frame))
        texts = deal(model, ls.task(frame.assign(label=[("file", "list")[k] for k in labels])))
        folds.append(Patches(model, [LayerPlan([1, 2])], texts).solved()[0].folds[0])
    assert torch.equal(folds[0].weight, folds[1].weight)
    assert folds[0].ridge == folds[1].ridge


def test_the_three_sets_share_no_text():
    model = shared_classifier()
    texts = deal(model, two_class_task())
    rows = [set(part.examples.rows) for part in (texts.solving, texts.choosing, texts.held)]
    assert sum(map(len, rows)) == len(set().union(*rows)) == len(texts.learned) == 60
    assert len(rows[0]) == pytest.approx(36, abs=2)  # a few texts occur twice
    running = deal(small_decoder(), running_task(), max_length=16)
    numbers = [set(part.texts) for part in (running.solving, running.choosing, running.held)]
    assert not numbers[0] & numbers[1] | numbers[0] & numbers[2] | numbers[1] & numbers[2]
    smaller = cut(model, LayerPlan([1]))
    patches.patch(model, LayerPlan([1]), smaller, texts)
    with pytest.raises(InputError, match="learned from"):
        ls.evaluate(smaller, two_class_task().only("train"))


def test_a_patch_that_is_no_better_is_not_applied_and_says_why():
    model = shared_classifier()
    plan, place = LayerPlan([1]), head_place(model)
    bad = patches.Fold(0, place.path, torch.zeros_like(place.module.weight), torch.ones(16), 1.0, 0.0)
    search = patches._Search(model, deal(model, three_class_task(labels=False)), [Variant(plan, (bad,))])
    (found,) = search.patches()
    assert not found.applied
    assert "The patch is not applied: its loss is" in found.notes[-1]
    assert found.domains[0].patched > found.domains[0].cut
    smaller = cut(model, plan)
    before = smaller.bert.pooler.dense.weight.clone()
    patches.apply(found, smaller, search.texts)
    assert torch.equal(smaller.bert.pooler.dense.weight, before)


def test_a_gap_below_the_first_block_is_told_and_left():
    model = small_decoder()
    found = Patches(model, [LayerPlan([2, 3])], deal(model, running_task(), max_length=16)).solved()[0]
    assert not found.applied
    assert "No block stands before the gap" in found.notes[0]
    assert "heal it instead" in found.notes[0]


@pytest.mark.parametrize("family", ["distilbert", "roberta", "electra", "gpt2", "modernbert"])
def test_every_kind_of_head_is_patched_where_it_reads_the_state(family):
    model = random_model(family, "classifier")
    plan = LayerPlan([1, 2])
    smaller = cut(model, plan)
    found = patches.patch(model, plan, smaller, deal(model, ls.task(pandas.DataFrame(UNLABELLED))))
    assert found.tried
    assert all(domain.better for domain in found.domains) == found.applied
    where = {each["where"] for each in found.tried}
    assert where <= ({"block 1", "block 2"} if family == "gpt2" else {"block 1", "block 2", "head"})


@pytest.mark.parametrize("kind", ["tags", "masked"])
def test_taggers_and_masked_models_are_patched_at_every_token(kind):
    model = random_model("bert", kind)
    task = (
        ls.task(pandas.DataFrame(UNLABELLED), kind="text")
        if kind == "masked"
        else ls.task(pandas.DataFrame(UNLABELLED))
    )
    texts = deal(model, task)
    place = head_place(model)
    assert place.path == ("classifier" if kind == "tags" else "cls.predictions.transform.dense")
    request = Request(Variant(LayerPlan([1, 2])), place, 4)
    (moments,) = patches.gathered(texts.solving, model, [request])
    assert moments.n == sum(map(len, texts.solving.encoded()))
    if kind == "tags":
        assert Patches(model, [LayerPlan([1, 2])], texts).solved()[0].applied


def test_a_cut_study_shows_the_patched_model_beside_the_plain_cut(tmp_path):
    model, task, texts = shared_classifier(), two_class_task(), pandas.DataFrame(UNLABELLED)
    study = ls.cut_study(model, "first 1", task, patch=texts, save=tmp_path / "smaller")
    assert study.frame["blocks"].tolist()[2] == "keep 1-1, head on layer 1, patched".replace("1-1", "1")
    assert study.patch.applied
    assert torch.equal(ls.load(tmp_path / "smaller").network.bert.pooler.dense.weight, study.patch.folds[0].weight)
    assert float(ls.evaluate(study.model, task)) == pytest.approx(study.frame["score"].iloc[2])
    assert float(ls.evaluate(ls.truncate(model, 1), task)) == pytest.approx(study.frame["score"].iloc[1])
    assert float(ls.evaluate(model, task)) == pytest.approx(study.frame["score"].iloc[0])  # it stays as it was
    assert any("Solved anew" in str(finding) for finding in study.findings())
    alone = ls.cut_study(model, "first 1", patch=texts, save=tmp_path / "unscored")
    assert "it is patched" in alone.how
    assert torch.equal(alone.model.bert.pooler.dense.weight, study.model.bert.pooler.dense.weight)


def test_a_model_given_by_its_folder_is_patched_as_one_that_is_open(tmp_path, caplog):
    """It was opened twice: what was solved was judged on another copy of the network, in which nothing was folded."""
    folder, task, texts = (
        ls.save(shared_classifier(), tmp_path / "model"),
        two_class_task(),
        pandas.DataFrame(UNLABELLED),
    )
    with caplog.at_level("INFO"):
        ls.truncation_curve(str(folder), task, mode="patched", texts=texts)
    assert not re.search(r"No patch is applied with the head on layers [^:]*\b1\b", caplog.text)
    options = {"rules": "last", "timed": False, "blocks": 2, "max_length": 16, "patch": texts}
    assert ls.advise(str(folder), task, **options).patch.applied
    opened = ls.load(folder)
    with pytest.raises(ValueError, match="for the network that is patched"):
        Patches(opened, [LayerPlan([1])], deal(ls.load(folder), ls.task(texts)))


def test_a_patch_that_is_not_applied_is_no_reason_for_memory(tmp_path, monkeypatch):
    texts = pandas.DataFrame(UNLABELLED)
    monkeypatch.setattr(patches.Domain, "better", False)
    study = ls.cut_study(shared_classifier(), "first 1", patch=texts, save=tmp_path / "smaller")
    assert not study.patch.applied
    assert "a patch was solved for it, and not applied" in study.how


def test_three_curves_are_drawn_as_one():
    frame = two_class_frame(160, 0).drop_duplicates("text", ignore_index=True)
    model, task = shared_classifier(), ls.task({"train": frame[:60], "validation": frame[60:]})
    curve = ls.truncation_curve(model, task, mode="untuned,patched", max_length=16)
    assert curve.frame["curve"].unique().tolist() == ["untuned", "patched"]
    assert len(curve.figures()[0].series) == 2
    whole = curve.frame[curve.frame["layer"] == model.depth]["score"]
    assert whole.iloc[0] == whole.iloc[1]
    plain = ls.truncation_curve(model, task, max_length=16).frame["score"]
    assert curve.frame[curve.frame["curve"] == "untuned"]["score"].tolist() == plain.tolist()
    texts = deal(model, task, like=task)
    (found,) = Patches(model, [LayerPlan([1])], texts).solved()
    smaller = cut(model, LayerPlan([1]))
    patches.apply(found, smaller, texts)
    expected = float(ls.evaluate(smaller, task, max_length=16))
    assert curve.frame[curve.frame["curve"] == "patched"]["score"].iloc[1] == pytest.approx(expected)
    with pytest.raises(InputError, match=r"for mode='patched'"):
        ls.truncation_curve(model, task, texts=task)


def test_advice_judges_plans_with_their_patches(tmp_path):
    model, task = shared_classifier(), two_class_task()
    options = {"rules": "last", "timed": False, "blocks": 2, "max_length": 16}
    advice = ls.advise(model, task, patch=pandas.DataFrame(UNLABELLED), **options)
    row = advice.frame[advice.frame["chosen"]].iloc[0]
    assert row["patched"] == advice.patch.applied
    assert not advice.frame["patched"].iloc[0]
    assert float(advice.score) == pytest.approx(row["score"])
    got = ls.load(advice.model).network.bert.pooler.dense.weight
    assert torch.equal(
        got, advice.patch.folds[0].weight if advice.patch.applied else model.network.bert.pooler.dense.weight
    )
    advice.save_model(tmp_path / "chosen")
    assert any("Solved anew" in str(finding) or "no better" in str(finding) for finding in advice.findings())
    rows = advice.parts.scoring
    plain = advice.evaluator.with_model(ls.load(cut(model, advice.choice)))
    assert advice.patch.applied
    assert advice.regained[0] == pytest.approx(row["score"] - plain.value(plain.logits(), rows))
    assert advice.verdict.regains == advice.regained[0]
    assert advice.verdict.regains_low <= advice.verdict.regains <= advice.verdict.regains_high
    assert advice.verdict.says.endswith(advice.findings()[1].text)


def test_an_embedding_model_gets_a_module_that_sentence_transformers_opens(tmp_path):
    model, task = shared_encoder(), ls.task(scored_pairs(40), text="a", text_pair="b", label="score")
    study = ls.cut_study(model, "first 1", task, patch=pandas.DataFrame(UNLABELLED), save=tmp_path / "patched")
    (domain,) = study.patch.domains
    assert study.patch.applied
    assert domain.patched < domain.cut
    assert "Dense behind mean pooling of embedding" in str(study.patch)
    opened = ls.load(tmp_path / "patched")
    assert float(ls.evaluate(opened, task)) == pytest.approx(study.frame["score"].iloc[2], abs=1e-5)
    assert float(ls.evaluate(model, task)) == pytest.approx(study.frame["score"].iloc[0])
    assert model.embedding is None
    assert "SentenceTransformer" in (tmp_path / "patched" / "README.md").read_text()
    library = pytest.importorskip("sentence_transformers")
    vectors = library.SentenceTransformer(str(tmp_path / "patched"), device="cpu").encode(UNLABELLED["text"][:4])
    for text, vector in zip(UNLABELLED["text"], vectors, strict=False):
        inputs = model.tokenizer(text, return_tensors="pt")
        with torch.inference_mode():
            states = opened.network(**inputs).last_hidden_state
        expected = opened.embedding.pooled(states, inputs["attention_mask"])[0]
        np.testing.assert_allclose(vector, expected.numpy(), atol=1e-5)


def test_a_map_of_embeddings_is_plain_least_squares():
    model = shared_encoder()
    texts = deal(model, ls.task(pandas.DataFrame(UNLABELLED)))
    (place,) = patches.embedding_places(texts.solving.embedding, model.width)
    request = Request(Variant(LayerPlan([1])), place, model.depth)
    (moments,) = patches.gathered(texts.solving, model, [request])
    fold = request.solved(moments, 0.1, torch.float32)
    x, y = [], []
    for text in texts.solving.examples.texts:
        inputs = model.tokenizer(text, return_tensors="pt")
        with torch.inference_mode():
            states = model.network(**inputs, output_hidden_states=True).hidden_states
        x.append(states[1][0].mean(0).double())
        y.append(states[-1][0].mean(0).double())
    x, y = torch.stack(x), torch.stack(y)
    eye, centred = torch.eye(16, dtype=torch.float64), x - x.mean(0)
    strength = 0.1 * float(centred.square().sum()) / 16
    system = centred.T @ centred + strength * eye
    expected = torch.linalg.solve(system, centred.T @ (y - y.mean(0)) + strength * eye).T
    torch.testing.assert_close(fold.weight.double(), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(fold.bias.double(), y.mean(0) - expected @ x.mean(0), rtol=1e-4, atol=1e-5)


def test_blocks_taken_out_of_a_post_norm_encoder_move_the_norm_and_the_head():
    model, plan = random_model("bert", "classifier"), LayerPlan([1, 4])
    texts = deal(model, ls.task(pandas.DataFrame(UNLABELLED)))
    place = block_place(model, 1)
    request = Request(Variant(plan), place, 3)
    (moments,) = patches.gathered(texts.solving, model, [request])
    assert moments.weight == sum(map(len, texts.solving.encoded()))
    found = Patches(model, [plan], texts).solved()[0]
    told = " ".join(found.notes)
    assert any(each["where"] == "block 1" for each in found.tried) or "a norm stands behind the matrix" in told
    assert {each["where"] for each in found.tried} <= {"block 1", "head"}


def test_a_second_domain_counts_by_the_distance_from_the_whole_model():
    model = small_decoder()
    texts = deal(model, running_task(), max_length=16, other=ls.task(pandas.DataFrame(UNLABELLED), kind="text"))
    found = Patches(model, [WITHOUT_BLOCK_2], texts).solved()[0]
    first, second = found.domains
    assert (first.loss, second.loss) == ("nll", "divergence")
    assert second.whole == pytest.approx(0, abs=1e-6)
    assert second.cut > 0
    assert found.applied == (bool(found.tried) and first.better and second.better)


def test_weights_of_16_bits_are_solved_for_and_stay_of_16_bits():
    model = small_decoder()
    half = ls.load(model.network.bfloat16(), tokenizer=model.tokenizer, dtype=torch.bfloat16)
    place = block_place(half, 1)
    request = Request(Variant(WITHOUT_BLOCK_2), place, 2)
    (moments,) = patches.gathered(deal(half, running_task(), max_length=16).solving, half, [request])
    fold = request.solved(moments, 0.01, torch.bfloat16)
    assert fold.weight.dtype == torch.bfloat16
    assert torch.isfinite(fold.weight).all()


def test_memory_does_not_grow_with_the_texts():
    model = shared_classifier()
    request = Request(Variant(LayerPlan([1])), head_place(model), model.depth)
    sizes = []
    for count in (12, 40):
        texts = deal(model, ls.task(pandas.DataFrame({"text": UNLABELLED["text"][:count]})))
        (moments,) = patches.gathered(texts.solving, model, [request])
        sizes.append(sum(part.numel() for part in moments._product.values()))
        assert moments._buffer is None  # no row waits
    assert sizes[0] == sizes[1]


def test_every_domain_has_its_own_share_and_stands_on_the_card(tmp_path):
    """The share of the first domain stood behind the second, and the card had the first alone."""
    model, plan = small_decoder(), WITHOUT_BLOCK_2
    texts = deal(model, running_task(), max_length=16)
    domains = (
        patches.Domain("mine", "nll", 30, "windows", 1.0, 2.0, 1.25),
        patches.Domain("others", "divergence", 20, "texts", 0.0, 0.5, 0.25),
    )
    place = block_place(model, 1)
    fold = patches.Fold(1, place.path, place.module.weight.detach().clone(), None, 0.1, 0.0)
    found = patches.Patch(
        plan, (fold,), (fold.spec(),), domains, (), {"task": "mine", "split": "all", "n": 9, "tokens": 9}
    )
    told = str(found)
    assert "(30 held-out windows), 75% of what the cut costs is back; others" in told
    assert told.endswith("(20 held-out texts), 50% of what the cut costs is back.")
    smaller = cut(model, plan)
    patches.apply(found, smaller, texts)
    card = (ls.save(smaller, tmp_path / "patched") / "README.md").read_text()
    assert (
        "on 30 held-out windows of `mine` it is 1.2500, where it was 2.0000 with the plain cut and 1.0000 whole" in card
    )
    assert "on 20 held-out texts of `others` it is 0.2500" in card
