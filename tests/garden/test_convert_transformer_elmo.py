"""The published transformer ELMo, converted: a plain forward by AllenNLP's names and formulas gives the same states."""

import json
import tarfile

import convert_transformer_elmo as convert
import numpy as np
import pytest
import torch

import layerscope as ls
from layerscope.data import Examples
from layerscope.models.elmo import character_ids

WIDTH, DEEP, LETTERS, FILTERS, DEPTH = 16, 12, 4, [[1, 5], [2, 6]], 2
COUNT = sum(number for _, number in FILTERS)
CONFIG = {
    "model": {
        "text_field_embedder": {
            "token_embedders": {
                "token_characters": {
                    "type": "character_encoding",
                    "embedding": {"num_embeddings": 262, "embedding_dim": LETTERS},
                    "encoder": {
                        "type": "cnn-highway", "activation": "relu", "embedding_dim": LETTERS, "filters": FILTERS,
                        "num_highway": 2, "projection_dim": WIDTH, "projection_location": "after_highway",
                        "do_layer_norm": True,
                    },
                }
            }
        },
        "contextualizer": {
            "type": "bidirectional_language_model_transformer", "input_dim": WIDTH, "hidden_dim": DEEP,
            "num_layers": DEPTH,
        },
    }
}  # fmt: skip
WORDS = "_text_field_embedder.token_embedder_token_characters"


def published():
    """Random weights by the names of the archive."""
    draw = np.random.default_rng(0).normal

    def pair(*shape):
        return {"weight": draw(size=shape) / 2, "bias": draw(size=shape[0]) / 2}

    def norm():
        return {"gamma": 1 + draw(size=WIDTH) / 4, "beta": draw(size=WIDTH) / 4}

    parts = {f"{WORDS}._embedding._module": {"weight": draw(size=(262, LETTERS))}}
    for k, (size, number) in enumerate(FILTERS):
        parts[f"{WORDS}._encoder._module.char_conv_{k}"] = {
            "weight": draw(size=(number, LETTERS, size)), "bias": draw(size=number),
        }  # fmt: skip
    for k in range(2):
        parts[f"{WORDS}._encoder._module._highways._layers.{k}"] = pair(2 * COUNT, COUNT)
    parts[f"{WORDS}._encoder._module._projection"] = pair(WIDTH, COUNT)
    parts[f"{WORDS}._encoder._module._layer_norm"] = norm()
    for direction in ("forward", "backward"):
        stack = f"_contextualizer._{direction}_transformer"
        for layer in range(DEPTH):
            block = f"{stack}.layers.{layer}"
            parts |= {f"{block}.self_attn.linears.{k}": pair(WIDTH, WIDTH) for k in range(4)}
            parts |= {f"{block}.feed_forward.w_1": pair(DEEP, WIDTH), f"{block}.feed_forward.w_2": pair(WIDTH, DEEP)}
            parts |= {f"{block}.sublayer.{k}.norm": norm() for k in range(2)}
        parts[f"{stack}.norm"] = norm()
    parts["_contextualizer._position"] = {"positional_encoding": np.zeros((1, 50, WIDTH))}
    parts["_softmax_loss"] = {"softmax_w": draw(size=(9, WIDTH)), "softmax_b": draw(size=9)}
    return {f"{a}.{b}": torch.tensor(v, dtype=torch.float32) for a, own in parts.items() for b, v in own.items()}


def by_hand(weights, words):
    """Layers 0..L of a text, as AllenNLP computes them."""
    w = {name: value.double().numpy() for name, value in weights.items()}

    def linear(name, x):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(name, x):
        spread = x.std(axis=-1, keepdims=True) + 1e-6
        return w[f"{name}.gamma"] * (x - x.mean(axis=-1, keepdims=True)) / spread + w[f"{name}.beta"]

    encoder, vectors = f"{WORDS}._encoder._module", []
    for row in character_ids(words, 50).numpy():
        letters = w[f"{WORDS}._embedding._module.weight"][row]
        read = []
        for k, (size, _) in enumerate(FILTERS):
            kernel, bias = w[f"{encoder}.char_conv_{k}.weight"], w[f"{encoder}.char_conv_{k}.bias"]
            at = [np.einsum("oit,ti->o", kernel, letters[p : p + size]) + bias for p in range(51 - size)]
            read.append(np.maximum(np.max(at, axis=0), 0))
        x = np.concatenate(read)
        for k in range(2):
            new, gate = np.split(linear(f"{encoder}._highways._layers.{k}", x), 2)
            gate = 1 / (1 + np.exp(-gate))
            x = gate * x + (1 - gate) * np.maximum(new, 0)
        vectors.append(norm(f"{encoder}._layer_norm", linear(f"{encoder}._projection", x)))
    x = np.stack(vectors)
    n = len(x)
    layers, sides = [np.concatenate([x, x], axis=1)], []
    angles = np.arange(n)[:, None] / 10000 ** (np.arange(0, WIDTH, 2) / WIDTH)
    places = np.zeros((n, WIDTH))
    places[:, 0::2], places[:, 1::2] = np.sin(angles), np.cos(angles)
    for direction, sees in (("forward", np.tril(np.ones((n, n)))), ("backward", np.triu(np.ones((n, n))))):
        stack, y, own = f"_contextualizer._{direction}_transformer", x + places, []
        for layer in range(DEPTH):
            block = f"{stack}.layers.{layer}"
            z = norm(f"{block}.sublayer.0.norm", y)
            q, k, v = (linear(f"{block}.self_attn.linears.{i}", z).reshape(n, 8, -1) for i in range(3))
            scores = np.einsum("qhd,khd->hqk", q, k) / np.sqrt(WIDTH // 8)
            scores = np.where(sees[None] > 0, scores, -1e30)
            share = np.exp(scores - scores.max(axis=-1, keepdims=True))
            share /= share.sum(axis=-1, keepdims=True)
            mixed = np.einsum("hqk,khd->qhd", share, v).reshape(n, -1)
            y = y + linear(f"{block}.self_attn.linears.3", mixed)
            z = norm(f"{block}.sublayer.1.norm", y)
            y = y + linear(f"{block}.feed_forward.w_2", np.maximum(linear(f"{block}.feed_forward.w_1", z), 0))
            own.append(y)
        own[-1] = norm(f"{stack}.norm", own[-1])
        sides.append(own)
    layers += [np.concatenate(pair, axis=1) for pair in zip(*sides, strict=True)]
    return [layer[1:-1] for layer in layers]


@pytest.mark.parametrize("packed", [True, False])
def test_a_converted_archive_gives_the_published_states(tmp_path, packed):
    weights, source = published(), tmp_path / "archive"
    source.mkdir()
    torch.save(weights, source / "weights.th")
    (source / "config.json").write_text(json.dumps(CONFIG))
    if packed:
        with tarfile.open(tmp_path / "model.tar.gz", "w:gz") as tar:
            for file in source.iterdir():
                tar.add(file, file.name)
        source = tmp_path / "model.tar.gz"
    convert.main([str(source), str(tmp_path / "out")])
    model = ls.load(str(tmp_path / "out"))
    texts = [["The", "cat", "sat", "."], ["A", "much", "longer", "text", "than", "the", "other", "é"]]
    examples = Examples("own", "all", [" ".join(t) for t in texts], np.arange(2), words=texts)
    reps = ls.extract(model, examples, pool="words", store=False)
    expected = [by_hand(weights, words) for words in texts]
    assert reps.layers == [0, 1, 2]
    for layer in range(3):
        np.testing.assert_allclose(reps[layer], np.concatenate([own[layer] for own in expected]), atol=1e-5)


def test_code_in_a_pickle_is_not_run(tmp_path):
    class Trap:
        def __reduce__(self):
            return (print, ("run",))

    torch.save({"a": Trap()}, tmp_path / "weights.th")
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    with pytest.raises(Exception, match=r"[Ww]eights.only"):
        convert.main([str(tmp_path), str(tmp_path / "out")])


def test_another_network_is_refused():
    other = json.loads(json.dumps(CONFIG))
    other["model"]["contextualizer"]["type"] = "lstm"
    with pytest.raises(SystemExit, match="another network"):
        convert.options_of(other)
