"""Small texts, models and trainings for tests of tuning."""

import numpy as np
import pandas
import torch
import zoo

import layerscope as ls
from layerscope.evaluation.heads import classifier_of
from layerscope.models.anatomy import block_modules, head_modules

WORDS = ["file", "list", "value", "return", "object", "string", "and", "the", "of", "in", "this", "that", "not"]

QUICK = {"epochs": 2, "batch": 8, "learning_rate": 1e-2}


def rows(count, seed):
    """Texts whose class is a word that stands in them."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, 3, count)
    texts = [" ".join([*generator.choice(WORDS[3:], size=generator.integers(1, 7)), WORDS[k]]) for k in labels]
    return pandas.DataFrame({"text": texts, "label": labels})


def model(family="bert", kind="encoder", **options):
    return ls.load(zoo.network(family, kind, **options), tokenizer=zoo.tokenizer(family))


def check_what_changes(family, task, strategy, method, size, expected):
    """Tune, and compare the parameters that changed with `expected(names in the tuned blocks, all names, anatomy)`.

    The head changes under every method. An embedding that no text uses, or a bias that a softmax cancels, may stay as
    it was; a whole weight matrix may not.
    """
    base = model(family)
    training = ls.tune(base, task, strategy=strategy, method=method, size=size, **QUICK)
    before, tuned = dict(classifier_of(base, task, 0).network.named_parameters()), training.model
    after = dict(tuned.named_parameters())
    names = {id(p): name for name, p in after.items()}
    blocks = block_modules(tuned.base_model, base.anatomy)
    inside = {names[id(p)] for b in training.job.strategy.blocks for p in blocks[b - 1].parameters()}
    heads = tuple(f"{path}." for path in head_modules(tuned, base.anatomy))
    wanted = {n for n in after if n.startswith(heads)} | expected(inside, set(after), base.anatomy)
    changed = {name for name, value in after.items() if name not in before or not torch.equal(before[name], value)}
    assert changed <= wanted
    untouched = {n for n in wanted - changed if "position" not in n and "token_type" not in n and "key.bias" not in n}
    assert not {n for n in untouched if n.endswith("weight") and "embed" not in n and "mask" not in n}, untouched
    assert len(blocks) == int(training.job.strategy.head)


def cases():
    """Every family with every kind of strategy that tunes blocks."""
    strategies = ("full", "(2, 3, 4)", "(2, 3, 3)")
    shared = [(family, strategy) for family in zoo.FAMILIES for strategy in strategies]
    return [(family, strategy) for family, strategy in shared if family != "albert" or strategy == "full"]
