"""A small task, and two seeds of a small classifier that were trained on it."""

import numpy as np
import pandas
import pytest
import torch

import layerscope as ls
from tests.helpers.models import random_network, word_tokenizer


@pytest.fixture(scope="package")
def data():
    generator = np.random.default_rng(0)
    others = ["value", "return", "object", "string", "and", "the", "of", "in"]
    labels = generator.integers(0, 2, 360)
    key = np.asarray(["file", "list"])[labels]
    texts = [" ".join(generator.permutation([*generator.choice(others, generator.integers(3, 9)), k])) for k in key]
    frame = pandas.DataFrame({"text": texts, "label": key})
    return ls.task({"train": frame[:240], "validation": frame[240:]})


@pytest.fixture(scope="package")
def seeds(data):
    models = [trained(data, seed) for seed in (0, 1)]
    assert min(ls.evaluate(model, data) for model in models) > 0.95
    return models


def trained(data, seed, steps=90, batch=16):
    """A classifier after a few epochs of plain AdamW."""
    examples, tokenizer = data.split("train"), word_tokenizer()
    network = random_network("bert", labels=2, seed=seed).train()
    network.config.id2label = dict(enumerate(examples.label_names))
    network.config.label2id = {name: k for k, name in enumerate(examples.label_names)}
    optimizer = torch.optim.AdamW(network.parameters(), 3e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 3e-3, steps)
    generator = torch.Generator().manual_seed(seed)
    for _ in range(steps):
        places = torch.randint(len(examples), (batch,), generator=generator).tolist()
        inputs = tokenizer([examples.texts[k] for k in places], padding=True, return_tensors="pt")
        loss = network(**inputs, labels=torch.as_tensor(examples.labels[places])).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    model = ls.load(network.eval(), tokenizer=tokenizer)
    model.name = f"seed-{seed}"
    return model
