"""Cutting every family: the same class, the same numbers as the blocks in place, and a checkpoint that reopens."""

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMultipleChoice,
    AutoModelForSequenceClassification,
)

import layerscope as ls
from layerscope.cutting.cut import can_be_built, check_buildable, check_in_place
from layerscope.errors import InputError, ModelError, PlanError
from layerscope.models import Replay
from layerscope.models.fingerprint import fingerprint
from layerscope.models.replay import caches_off
from layerscope.models.selfcheck import primary
from tests.helpers.models import (
    FAMILIES,
    LAYERED_CONFIGS,
    passed_over,
    random_network,
    save_random,
    token_batch,
    word_tokenizer,
)

OPENERS = {
    "classifier": AutoModelForSequenceClassification,
    "choice": AutoModelForMultipleChoice,
    "encoder": AutoModel,
}
WITHOUT_CHOICE = ("gpt2", "openai-gpt", "llama", "qwen3", "deberta")
CASES = [(f, k) for f in FAMILIES for k in OPENERS if not (k == "choice" and f in WITHOUT_CHOICE)]
PLANS = [ls.LayerPlan([1, 2]), ls.LayerPlan([1, 4]), ls.LayerPlan([1, 3, 4]), ls.LayerPlan([1, 2, 3, 4])]


def model_of(family, kind="classifier", **options):
    return ls.load(random_network(family, kind, **options), tokenizer=word_tokenizer(family))


def inputs_of(kind, left):
    inputs = token_batch(rows=4, left=left)
    return {k: v.view(2, 2, -1) for k, v in inputs.items()} if kind == "choice" else inputs


@torch.inference_mode()
def in_place(model, plan, inputs):
    replay = Replay(model, inputs)
    state = replay.states[0]
    for block in plan.keep:
        state = replay.run(state, block)
    return primary(replay.finish(state))


@pytest.mark.parametrize(("family", "kind"), CASES)
def test_a_cut_model_is_what_its_blocks_compute_and_reopens(family, kind, tmp_path):
    model = model_of(family, kind)
    before = fingerprint(model)
    for plan in PLANS:
        smaller = ls.cut(model, plan)
        assert type(smaller) is type(model.network)
        for left in (False, True):
            inputs = inputs_of(kind, left)
            expected = in_place(model, plan, inputs)
            with torch.inference_mode(), caches_off(smaller):
                torch.testing.assert_close(primary(smaller(**inputs)), expected, rtol=1e-4, atol=1e-5)
    assert fingerprint(model) == before
    folder = ls.save(smaller := ls.cut(model, PLANS[1]), tmp_path / "small")
    again, info = OPENERS[kind].from_pretrained(folder, output_loading_info=True)
    assert not info["missing_keys"]
    assert not info["unexpected_keys"]
    inputs = inputs_of(kind, False)
    with torch.inference_mode(), caches_off(again.eval()), caches_off(smaller):
        torch.testing.assert_close(primary(again(**inputs)), primary(smaller(**inputs)), rtol=1e-4, atol=1e-5)
    ls.save(model, tmp_path / "whole")
    sizes = [(tmp_path / name / "model.safetensors").stat().st_size for name in ("small", "whole")]
    card = (folder / "README.md").read_text()
    assert "blocks 2-3 were removed" in card
    if family == "albert":
        assert abs(sizes[0] - sizes[1]) < 100
        assert "share their weights" in card
    else:
        assert sizes[0] < 0.85 * sizes[1]
    assert ls.load(str(folder)).depth == 2


@pytest.mark.parametrize("family", FAMILIES)
def test_the_head_on_the_embeddings(family, tmp_path):
    model = model_of(family)
    if family in ("modernbert", "deberta-v2"):
        with pytest.raises(ModelError, match="no block"):
            ls.truncate(model, 0)
        return
    bare = ls.truncate(model, 0)
    inputs = token_batch()
    with torch.inference_mode(), caches_off(bare):
        torch.testing.assert_close(
            bare(**inputs).logits, in_place(model, ls.LayerPlan([]), inputs), atol=1e-5, rtol=1e-4
        )
    assert ls.load(str(ls.save(bare, tmp_path / "bare"))).depth == 0


def test_truncate_and_skip_by_name(tmp_path):
    folder = save_random(tmp_path / "model", "bert")
    assert ls.truncate(folder, keep=3).config.num_hidden_layers == 3
    skipped = ls.skip(folder, 2, 3)
    assert skipped.config.num_hidden_layers == 2
    again = ls.truncate(skipped, 1)  # a cut model can be cut again
    card = (ls.save(again, tmp_path / "twice") / "README.md").read_text()
    assert "blocks 2-3 were removed" in card
    assert "blocks 2 were removed" in card
    with pytest.raises(InputError, match=r"plan is \[1, 2\]; it must be a LayerPlan"):
        ls.cut(folder, [1, 2])
    with pytest.raises(InputError, match=r"blocks 1\.\.4"):
        ls.skip(folder, 3, 5)


def test_albert_without_blocks_is_albert_with_fewer_repeats():
    model = model_of("albert")
    inputs = token_batch()
    with torch.inference_mode():
        one, other = (ls.skip(model, *span)(**inputs).logits for span in ((1, 2), (3, 4)))
        torch.testing.assert_close(one, other)
        torch.testing.assert_close(one, ls.truncate(model, 2)(**inputs).logits)


def test_albert_with_several_groups_keeps_their_order():
    model = model_of("albert", num_hidden_groups=2)
    assert ls.cut(model, ls.LayerPlan([1, 3])).config.num_hidden_layers == 2
    with pytest.raises(ModelError, match="2 groups of weights"):
        ls.truncate(model, 2)


def test_what_cannot_be_done_right_is_refused():
    with pytest.raises(ModelError, match="cannot lose block 1: the first block of a ModernBERT"):
        ls.skip(model_of("modernbert"), 1, 1)


def test_adapters_must_be_merged_first(tmp_path):
    from peft import LoraConfig, get_peft_model

    network = random_network("bert")
    adapted = get_peft_model(network, LoraConfig(target_modules=["query"], init_lora_weights=False))
    inside = adapted.base_model.model
    with pytest.raises(InputError, match="merge_and_unload"):
        ls.truncate(adapted, 2)
    for act in (
        lambda: ls.truncate(ls.load(inside, tokenizer=word_tokenizer()), 2),
        lambda: ls.save(inside, tmp_path / "x"),
    ):
        with pytest.raises(ModelError, match="live adapters; merge them first"):
            act()
    assert not (tmp_path / "x").exists()
    merged = adapted.merge_and_unload()
    smaller = ls.truncate(ls.load(merged, tokenizer=word_tokenizer()), 2)
    assert ls.load(str(ls.save(smaller, tmp_path / "merged"))).depth == 2


def test_per_layer_lists_and_indices_follow(tmp_path):
    qwen = ls.cut(model_of("qwen3"), ls.LayerPlan([2, 4]))
    assert len(qwen.config.layer_types) == 2
    assert [block.self_attn.layer_idx for block in qwen.model.layers] == [0, 1]
    bert = ls.cut(model_of("modernbert"), ls.LayerPlan([1, 3, 4]))
    assert bert.config.layer_types == [model_of("modernbert").network.config.layer_types[i] for i in (0, 2, 3)]


@pytest.mark.parametrize("keep", [[2, 4, 5], pytest.param([1, 3, 4, 5], marks=pytest.mark.slow)], ids=str)
@pytest.mark.parametrize("family", LAYERED_CONFIGS)
def test_what_a_config_says_of_single_blocks_is_said_of_those_that_stay(family, keep, tmp_path):
    whole, plan = save_random(tmp_path / "whole", family, "next"), ls.LayerPlan(keep)
    batch = token_batch(rows=1, length=12)
    network = AutoModelForCausalLM.from_pretrained(whole).eval()
    depth = network.config.num_hidden_layers
    lists = [module for module in network.modules() if isinstance(module, torch.nn.ModuleList)]
    layers = next(each for each in lists if len(each) == depth)
    with torch.inference_mode(), passed_over(layers[block - 1] for block in plan.removed(depth)):
        expected = network(**batch, use_cache=False).logits
    model = ls.load(whole)
    with torch.inference_mode(), caches_off(model.network):
        states = model.network.base_model(**batch, output_hidden_states=True).hidden_states[1]
        torch.testing.assert_close(Replay(model, batch).states[1], states)
    if family == "jamba" and keep == [2, 4, 5]:  # mixed kinds of blocks that recur in no period
        for cut in (lambda: ls.cut(model, plan), lambda: ls.cut_folder(whole, plan, tmp_path / "cut")):
            with pytest.raises(
                PlanError, match=r"attn_layer_period=2 and attn_layer_offset=1 .* no value says that of"
            ):
                cut()
        assert not can_be_built(model, plan)
        return
    assert can_be_built(model, plan)
    check_in_place(model, plan)
    folders = [ls.save(ls.cut(model, plan), tmp_path / "memory"), ls.cut_folder(whole, plan, tmp_path / "disk")]
    for folder in folders:
        again, info = AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True)
        assert not info["missing_keys"]
        assert not info["unexpected_keys"]
        with torch.inference_mode():
            got = again.eval()(**batch, use_cache=False).logits
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
    assert model.network.config.num_hidden_layers == depth


def test_a_field_about_single_blocks_that_is_not_known_is_refused_by_its_name(tmp_path, monkeypatch):
    from layerscope.models import architecture

    lists = [name for name in architecture.LAYER_LISTS if name != "no_rope_layers"]
    monkeypatch.setattr(architecture, "LAYER_LISTS", lists)
    whole = save_random(tmp_path / "whole", "smollm3", "next")
    model = ls.load(whole)  # opens, and is evaluated
    for cut in (lambda: ls.truncate(model, 3), lambda: ls.cut_folder(whole, ls.LayerPlan([1]), tmp_path / "cut")):
        with pytest.raises(
            PlanError, match=r"smollm3 has no_rope_layers=\[1, 0, 1, 1, 0\] in its config, a field that may"
        ):
            cut()


def test_a_cut_that_cannot_run_with_its_cache_is_refused(tmp_path):
    types = ["linear_attention"] * 3 + ["full_attention"]
    model = model_of("qwen3_next", "encoder", num_hidden_layers=4, layer_types=types)
    with pytest.raises(ModelError, match=r"blocks 1-2 cannot run with its cache on, .*get_seq_length"):
        ls.truncate(model, 2)
    again = ls.load(ls.save(ls.skip(model, 1, 2), tmp_path / "saved"))
    ids = token_batch(rows=1)["input_ids"]
    with torch.inference_mode():
        past = again.network(input_ids=ids[:, :-1], use_cache=True).past_key_values
        step = again.network(input_ids=ids[:, -1:], past_key_values=past).last_hidden_state
        whole = again.network(input_ids=ids, use_cache=False).last_hidden_state
    torch.testing.assert_close(step[:, -1], whole[:, -1], rtol=1e-3, atol=1e-4)


def test_the_reason_of_a_refused_cut_is_said():
    torch.manual_seed(0)
    sizes = {"num_hidden_layers": 4, "hidden_size": 32, "num_attention_heads": 4, "intermediate_multiple_size": 1}
    model = ls.load(AutoModel.from_config(AutoConfig.for_model("gpt_neox_japanese", vocab_size=40, **sizes)).eval())
    with pytest.raises(
        ModelError, match=r"blocks 1-3 as a checkpoint: 1 of .* missing.* layers\.2\.attention\.dense_bias"
    ):
        ls.truncate(model, 3)
    with pytest.raises(PlanError, match=r"blocks 1-3 as a checkpoint: .* such as layers\.2\.attention\.dense_bias;"):
        check_buildable(model, ls.LayerPlan([1, 2, 3]))


@pytest.mark.parametrize("keep", [[1, 2], [1, 4], [2, 3, 4], [1, 2, 3, 4]], ids=str)
@pytest.mark.parametrize("family", [*FAMILIES, "gpt2 by number", "jamba"])
def test_what_can_be_built_is_what_is_cut(family, keep):
    name, _, by_number = family.partition(" ")
    model = model_of(name, **({"scale_attn_by_inverse_layer_idx": True} if by_number else {}))
    try:
        ls.cut(model, ls.LayerPlan(keep))
        cuts = True
    except ModelError:
        cuts = False
    assert can_be_built(model, ls.LayerPlan(keep)) == cuts


def test_a_list_that_has_as_many_entries_as_blocks_by_chance_stays_whole(tmp_path):
    ends = [3, 4, 5, 6]
    folder = save_random(tmp_path / "whole", "qwen2", "next", eos_token_id=ends)
    ls.save(ls.truncate(folder, 2), tmp_path / "memory")
    ls.cut_folder(folder, ls.LayerPlan([1, 2]), tmp_path / "disk")
    for name in ("memory", "disk"):
        config = AutoConfig.from_pretrained(tmp_path / name)
        assert config.eos_token_id == ends
        assert len(config.layer_types) == 2


def test_no_block_of_a_family_without_a_record_is_a_sentence_of_its_own(tmp_path):
    with pytest.raises(ModelError, match=r"no block \(num_hidden_layers is 0\) cannot be opened"):
        ls.save(ls.truncate(random_network("qwen2", "next"), 0), tmp_path / "none")


def test_plans_with_the_same_config_are_built_once(monkeypatch):
    model, built = model_of("bert"), {}
    plans = [ls.LayerPlan([1, 2]), ls.LayerPlan([1, 3]), ls.LayerPlan([1, 2, 3])]
    assert all(can_be_built(model, plan, built) for plan in plans)
    assert len(built) == 2
    monkeypatch.setattr(type(model.network), "_from_config", lambda *_, **__: pytest.fail("it was built again"))
    assert all(can_be_built(model, plan, built) for plan in plans)
