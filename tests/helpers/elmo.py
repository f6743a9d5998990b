"""A small ELMo with random weights of the published layout, and ELMo in plain NumPy, one word and one step at a time.

The functions in NumPy are written from the description of the published format, independently of the module: loops, no
batches, no padding.
"""

from __future__ import annotations

import numpy as np
import torch

from layerscope.models.elmo import Elmo, ElmoOptions, character_ids
from layerscope.models.elmo_files import published_weights

ELMO_OPTIONS = {
    "lstm": {
        "use_skip_connections": True, "projection_dim": 6, "cell_clip": 0.4, "proj_clip": 0.3, "dim": 10, "n_layers": 3,
    },
    "char_cnn": {
        "activation": "relu", "filters": [[1, 4], [2, 3], [3, 5]], "n_highway": 2, "embedding": {"dim": 4},
        "n_characters": 262, "max_characters_per_token": 12,
    },
}  # fmt: skip


def random_arrays(options: dict, seed: int = 0) -> dict[str, np.ndarray]:
    """Weights of the published layout; large enough that both clips bite."""
    draw = np.random.default_rng(seed).normal
    lstm, cnn = options["lstm"], options["char_cnn"]
    width, dim, letters = lstm["projection_dim"], lstm["dim"], cnn["embedding"]["dim"]
    filters = sum(number for _, number in cnn["filters"])
    arrays = {"char_embed": draw(size=(261, letters))}
    for k, (size, number) in enumerate(cnn["filters"]):
        arrays |= {f"CNN/W_cnn_{k}": draw(size=(1, size, letters, number)), f"CNN/b_cnn_{k}": draw(size=number)}
    for k in range(cnn["n_highway"]):
        for part in ("carry", "transform"):
            arrays |= {
                f"CNN_high_{k}/W_{part}": draw(size=(filters, filters)) / 3,
                f"CNN_high_{k}/b_{part}": draw(size=filters),
            }
    arrays |= {"CNN_proj/W_proj": draw(size=(filters, width)) / 3, "CNN_proj/b_proj": draw(size=width)}
    for direction in range(2):
        for layer in range(lstm["n_layers"]):
            cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            arrays |= {
                f"{cell}/W_0": draw(size=(2 * width, 4 * dim)) / 2,
                f"{cell}/B": draw(size=4 * dim),
                f"{cell}/W_P_0": draw(size=(dim, width)),
            }
    return {name: value.astype(np.float32) for name, value in arrays.items()}


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def characters(word: str | None, mark: int | None, longest: int) -> list[int]:
    """A word's characters between 258 and 259, filled up with 260; a mark of the text stands for a whole word."""
    inner = [mark] if mark is not None else list(word.encode("utf-8"))[: longest - 2]
    row = [258, *inner, 259]
    return row + [260] * (longest - len(row))


def word_vector(row: list[int], options: dict, arrays: dict[str, np.ndarray]) -> np.ndarray:
    letters = np.stack([arrays["char_embed"][k] for k in row]).astype(np.float64)
    parts = []
    for k, (size, number) in enumerate(options["char_cnn"]["filters"]):
        kernel, bias = arrays[f"CNN/W_cnn_{k}"][0], arrays[f"CNN/b_cnn_{k}"]
        best = np.full(number, -np.inf)
        for place in range(len(row) - size + 1):
            here = bias.astype(np.float64)
            for offset in range(size):
                here = here + letters[place + offset] @ kernel[offset]
            best = np.maximum(best, here)
        parts.append(np.maximum(best, 0) if options["char_cnn"]["activation"] == "relu" else np.tanh(best))
    x = np.concatenate(parts)
    for k in range(options["char_cnn"]["n_highway"]):
        own = {part: arrays[f"CNN_high_{k}/{part}"] for part in ("W_carry", "b_carry", "W_transform", "b_transform")}
        gate = sigmoid(x @ own["W_carry"] + own["b_carry"])
        x = gate * np.maximum(x @ own["W_transform"] + own["b_transform"], 0) + (1 - gate) * x
    return x @ arrays["CNN_proj/W_proj"] + arrays["CNN_proj/b_proj"]


def lstm_step(
    x: np.ndarray, state: np.ndarray, cell: np.ndarray, options: dict, own: dict[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """One step of one direction: the next state (the output) and the next memory cell."""
    dim, clip, clip_state = (options["lstm"][name] for name in ("dim", "cell_clip", "proj_clip"))
    gates = np.concatenate([x, state]) @ own["W_0"] + own["B"]
    enter, candidate, keep, show = gates[:dim], gates[dim : 2 * dim], gates[2 * dim : 3 * dim], gates[3 * dim :]
    cell = sigmoid(keep + 1) * cell + sigmoid(enter) * np.tanh(candidate)
    cell = np.clip(cell, -clip, clip)
    return np.clip((sigmoid(show) * np.tanh(cell)) @ own["W_P_0"], -clip_state, clip_state), cell


def states_by_hand(words: list[str], options: dict, arrays: dict[str, np.ndarray]) -> list[np.ndarray]:
    """Layers 0..L of one text, without the marks at its ends."""
    longest = options["char_cnn"]["max_characters_per_token"]
    rows = [characters(None, 256, longest), *(characters(w, None, longest) for w in words)]
    rows.append(characters(None, 257, longest))
    vectors = [word_vector(row, options, arrays) for row in rows]
    layers = [[np.concatenate([v, v]) for v in vectors]]
    inputs = [list(vectors), list(vectors)]
    for layer in range(options["lstm"]["n_layers"]):
        outputs = []
        for direction in range(2):
            prefix = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
            own = {name: arrays[f"{prefix}/{name}"].astype(np.float64) for name in ("W_0", "B", "W_P_0")}
            state, cell = np.zeros(options["lstm"]["projection_dim"]), np.zeros(options["lstm"]["dim"])
            order = range(len(rows)) if direction == 0 else reversed(range(len(rows)))
            made = [np.empty(0)] * len(rows)
            for place in order:
                state, cell = lstm_step(inputs[direction][place], state, cell, options, own)
                made[place] = state + inputs[direction][place] if layer > 0 else state
            outputs.append(made)
        inputs = outputs
        layers.append([np.concatenate(pair) for pair in zip(*outputs, strict=True)])
    return [np.stack(layer[1:-1]) for layer in layers]


ELMO_TEXTS = [
    ["The", "cat", "sat", "."],
    ["Ünïcödé", "extraordinarily-long-word", "x"],
    ["One"],
    ["a", "much", "longer", "text", "than", "the", "others", "has", "many", "more", "words", "in", "it"],
]


def elmo_network(options=ELMO_OPTIONS, seed=0):
    parsed = ElmoOptions.model_validate(options)
    arrays = random_arrays(options, seed)
    made = Elmo(parsed)
    made.load_state_dict(published_weights(parsed, arrays.__getitem__))
    return made.eval(), arrays


def elmo_states(made, texts):
    """Layers 0..L of each text, without marks and padding."""
    longest = made.options.char_cnn.max_characters_per_token
    rows = [character_ids(words, longest) for words in texts]
    ids = torch.nn.utils.rnn.pad_sequence(rows, batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(len(row)) for row in rows], batch_first=True)
    with torch.inference_mode():
        states = made(ids, mask)
    return [[state[k, 1 : len(words) + 1].numpy() for state in states] for k, words in enumerate(texts)]
