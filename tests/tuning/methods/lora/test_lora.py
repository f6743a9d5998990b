import pytest
import torch

import layerscope as ls
from layerscope.evaluation.layer_heads import classifier_of
from layerscope.models.replay import caches_off
from tests.helpers.models import (
    FAMILIES,
    QUICK,
    check_what_changes,
    random_model,
    random_network,
    token_batch,
    tuning_cases,
    word_tokenizer,
)


@pytest.mark.parametrize(("family", "strategy"), tuning_cases())
def test_exactly_the_right_parameters_change(family, strategy, task):
    def expected(inside, _, architecture):
        return {n for n in inside if n.endswith(tuple(f".{target}.weight" for target in architecture.lora))}

    check_what_changes(family, task, strategy, "lora", 4, expected)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_part_of_a_head_is_lost_when_lora_is_reloaded(family, task):
    """peft's adapter on a classifier with another random head answers as the merged checkpoint does."""
    from peft import PeftModel

    base = random_model(family)
    training = ls.tune(base, task, method="lora", size=2, **QUICK)
    other = classifier_of(base, task, seed=5)
    again = PeftModel.from_pretrained(other.network, training.path / "adapter").eval()
    merged = training.model.eval()
    inputs = token_batch()
    with torch.inference_mode(), caches_off(merged), caches_off(other.network):
        torch.testing.assert_close(again(**inputs).logits, merged(**inputs).logits, rtol=1e-3, atol=1e-4)


def test_everywhere_are_all_projections_of_the_strategys_blocks():
    from layerscope.tuning.methods.lora import Lora, projections
    from layerscope.tuning.strategy import Strategy

    network = ls.load(random_network("llama", "next"), tokenizer=word_tokenizer("llama"))
    strategy = Strategy(3, 4, 4)
    paths = projections(network, strategy)
    assert len(paths) == 2 * 7
    assert all(path.startswith(("model.layers.2.", "model.layers.3.")) for path in paths)
    trained = Lora(4, everywhere=True).apply(network, strategy, False, 0)
    names = {name for name, parameter in trained.named_parameters() if parameter.requires_grad}
    assert len(names) == 2 * len(paths)
    assert all("lora_" in name for name in names)  # the vocabulary head stays as it is
    assert Lora(4).spec() != Lora(4, everywhere=True).spec()
