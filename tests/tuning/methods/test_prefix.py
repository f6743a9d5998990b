import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.errors import ModelError
from layerscope.tuning.training_job import prepared
from tests.helpers.data import three_class_frame
from tests.helpers.models import FAMILIES, QUICK, random_model, random_network, save_random, token_batch, word_tokenizer


@pytest.mark.parametrize("family", [f for f in FAMILIES if ls.load(random_network(f)).architecture.prefix])
def test_the_tuned_model_answers_as_pefts_own_module(family, task):
    from peft import PeftModel

    training = ls.tune(random_model(family), task, method="prefix", size=3, **QUICK)
    assert training.trainable > 0
    assert 0 <= training.score <= 1
    assert not training.cached
    tuned, job = training.model, training.job
    assert type(tuned).__name__.endswith("ForSequenceClassification")
    network = prepared(job.training_data.model, job.training_data.task, job.strategy, job.seed).network
    peft = PeftModel.from_pretrained(network, training.path / "adapter").eval()
    with torch.inference_mode():
        for seed in (0, 1):
            inputs = token_batch(seed=seed)
            torch.testing.assert_close(tuned(**inputs).logits, peft(**inputs).logits, rtol=1e-4, atol=1e-5)


def test_a_folder_is_evaluated_extracted_and_compared_but_not_replayed(tmp_path):
    base, data = save_random(tmp_path / "base", "bert", "encoder"), three_class_frame(60, 0)
    training = ls.tune(str(base), data, out=tmp_path / "tuned", method="prefix", size=5, **QUICK)
    opened = ls.load(tmp_path / "tuned")
    assert opened.positions == 75  # of 80, of which the prefix has 5
    assert ls.evaluate(opened, data) == pytest.approx(training.score)
    reps = ls.extract(opened, data, pool="mean", special=True, store=False)
    for place, text in enumerate(data["text"][:5]):
        inputs = word_tokenizer()(text, return_tensors="pt")
        with torch.inference_mode():
            states = opened.network(**inputs, output_hidden_states=True).hidden_states
        for layer in range(5):
            np.testing.assert_allclose(reps[layer][place], states[layer][0].mean(dim=0), rtol=1e-4, atol=1e-5)
    assert ls.compare(str(base), tmp_path / "tuned", task=data, pool="mean").values.shape == (5, 5)
    spec = opened.spec()
    with torch.no_grad():
        next(opened.network.base_model.layerscope_prefixes.parameters()).add_(1)
    assert opened.spec() != spec
    for refused in (ls.truncation_curve, ls.skip_map, ls.advise):
        with pytest.raises(ModelError, match=r"prefix tuning.*evaluate, extract and compare run each block once"):
            refused(tmp_path / "tuned", data, all_rows=True)
    with pytest.raises(ModelError, match="live adapters that no standard checkpoint can hold"):
        ls.truncate(tmp_path / "tuned", 2)
