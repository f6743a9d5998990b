"""Objectives against transformers' own losses, and what must not be seen is not seen."""

import dataclasses

import numpy as np
import pytest
import torch
from nursery.objectives import Permuted, Replaced, chosen_positions, masked
from nursery.recipes import Recipe, build
from nursery.vocabulary import MASK_ID, SEP_ID, SPECIAL

from tests.helpers.data import GARDEN_SIZES

VOCABULARY, LENGTH = 90, 20


def small(family, **changes):
    recipe = Recipe.read(family)
    config = recipe.config | GARDEN_SIZES[family]
    generator = recipe.generator and recipe.generator | {"hidden_size": 16, "intermediate_size": 32}
    return build(dataclasses.replace(recipe, config=config, generator=generator, **changes), VOCABULARY, 0).eval()


def tokens_of(rows=6, seed=0):
    tokens = torch.randint(5, VOCABULARY, (rows, LENGTH), generator=torch.Generator().manual_seed(seed))
    tokens[:, 0], tokens[:, -1], tokens[:, 7] = 2, SEP_ID, SEP_ID
    return tokens


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def test_special_tokens_are_never_chosen_and_positions_differ():
    tokens = tokens_of(200)
    positions = chosen_positions(tokens, 5, generator())
    assert (tokens.gather(1, positions) >= len(SPECIAL)).all()
    assert all(len(set(row)) == 5 for row in positions.tolist())


def test_masking_is_eighty_ten_ten_and_touches_nothing_else():
    tokens = tokens_of(4000)
    positions = chosen_positions(tokens, 5, generator())
    found = masked(tokens, positions, VOCABULARY, generator(1))
    new, old = found.gather(1, positions), tokens.gather(1, positions)
    assert abs((new == MASK_ID).float().mean() - 0.8) < 0.01
    assert abs((new == old).float().mean() - 0.1 - 0.1 / (VOCABULARY - 5)) < 0.01
    assert (found.scatter(1, positions, old) == tokens).all()


@pytest.mark.parametrize("family", ["bert", "roberta", "albert", "deberta"])
def test_the_masked_loss_is_transformers_own(family):
    objective, tokens = small(family), tokens_of()
    batch = objective.prepare(tokens, generator())
    labels = torch.full_like(tokens, -100).scatter(1, batch["positions"], batch["labels"])
    expected = objective.network(input_ids=batch["inputs"], labels=labels).loss
    torch.testing.assert_close(objective(batch)["loss"], expected)


def test_the_causal_loss_is_transformers_own():
    objective, tokens = small("gpt2"), tokens_of()
    expected = objective.network(input_ids=tokens, labels=tokens).loss
    torch.testing.assert_close(objective(objective.prepare(tokens, generator()))["loss"], expected)


def test_the_replaced_tokens_come_from_the_generators_distribution():
    objective, tokens = small("electra"), tokens_of()
    assert isinstance(objective, Replaced)
    batch = objective.prepare(tokens, generator())
    found = objective(batch)
    rows, positions = torch.arange(len(tokens))[:, None], batch["positions"]
    logits = objective.generator(input_ids=tokens.scatter(1, positions, MASK_ID)).logits[rows, positions]
    probabilities = logits.double().softmax(-1).detach().numpy()
    corrupted = tokens.clone()
    for i, j in np.ndindex(*positions.shape):
        picked = np.searchsorted(np.cumsum(probabilities[i, j]), float(batch["draw"][i, j]))
        corrupted[i, positions[i, j]] = min(int(picked), VOCABULARY - 1)
    counted = tokens >= len(SPECIAL)  # special tokens are never replaced, and do not count
    logits, fake = objective.network(input_ids=corrupted).logits[counted], (corrupted != tokens)[counted]
    expected = torch.where(fake, -logits.sigmoid().log(), -(1 - logits.sigmoid()).log()).mean()
    torch.testing.assert_close(found["detection"], expected)
    torch.testing.assert_close(found["loss"], found["generator"] + 50 * found["detection"])


def test_the_generator_shares_the_embeddings_and_is_not_kept():
    objective = small("electra")
    kept = dict(objective.kept.named_parameters())
    assert (
        objective.generator.electra.embeddings.word_embeddings.weight
        is kept["electra.embeddings.word_embeddings.weight"]
    )
    assert not any("generator" in name for name in kept)


def test_a_token_is_predicted_from_earlier_ones_of_the_order_only():
    objective, tokens = small("xlnet"), tokens_of(1)
    assert isinstance(objective, Permuted)
    batch = objective.prepare(tokens, generator())
    ranks, order = batch["ranks"], batch["positions"][0]

    def queries(inputs):
        hidden = (ranks.unsqueeze(1) > 0) & (ranks.unsqueeze(1) >= ranks.unsqueeze(2))
        wanted = torch.nn.functional.one_hot(order[None], LENGTH)
        return objective.network.transformer(
            input_ids=inputs, perm_mask=hidden.float(), target_mapping=wanted.float()
        ).last_hidden_state[0]

    before = queries(tokens)
    changed = tokens.clone()
    changed[0, order[1]] = (changed[0, order[1]] - 4) % 80 + 5
    moved = (queries(changed) - before).abs().amax(-1) > 1e-6
    assert moved.tolist() == [False, False, *[True] * (len(order) - 2)]


@pytest.mark.parametrize("family", sorted(GARDEN_SIZES))
def test_a_training_step_is_one_graph(family):
    objective = small(family).train()
    batch = objective.prepare(tokens_of(), generator())
    torch._dynamo.reset()
    compiled = torch.compile(objective, backend="eager", fullgraph=True)  # fails on anything that breaks the graph
    torch.testing.assert_close(compiled(batch)["loss"], objective(batch)["loss"])
