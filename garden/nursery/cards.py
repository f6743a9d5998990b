"""The card of a model: `card.json` for programs, README.md for people, the same facts in both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

CARD, PAGE = "card.json", "README.md"
_OBJECTIVES = {
    "masked": "masked language modelling: 15 % of the tokens, masked anew in every step (80 % [MASK], 10 % another "
    "token, 10 % as it was); no next-sentence loss",
    "replaced": "replaced-token detection: a small generator (not kept) fills 15 % of the tokens, the model finds "
    "which are not real",
    "causal": "causal language modelling: the next token",
    "permuted": "permutation language modelling: the last sixth of the tokens of a drawn order",
}
_HEADS = {
    "masked": "The masked-LM head is kept: its output matrix is the embedding matrix, so it is small.",
    "replaced": "The detection head is kept.",
    "causal": "The output matrix is the embedding matrix.",
    "permuted": "The output matrix is the embedding matrix.",
}

_SUM = {"replaced": "; the loss is the generator's and 50 times that of detection"}


def read(folder: Path) -> dict[str, Any]:
    return json.loads((folder / CARD).read_text(encoding="utf-8"))


def write(folder: Path, card: dict[str, Any]) -> None:
    """Both files; card.json last, since it says that the model is finished."""
    (folder / PAGE).write_text(page(card), encoding="utf-8")
    partial = folder / f"{CARD}.partial"
    partial.write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    partial.replace(folder / CARD)


def page(card: dict[str, Any]) -> str:
    """The card as Markdown."""
    corpus = card["corpus"]
    losses = ", ".join(f"{name} {value:.3f}" for name, value in card["held_out"].items())
    lines = [
        f"# {card['name']}",
        "",
        f"A small {card['architecture']} of the layerscope garden, pre-trained from scratch.",
        "",
        "| | |",
        "| --- | --- |",
        f"| objective | {_OBJECTIVES[card['objective']]}{_before(card)} |",
        f"| parameters | {card['parameters']:,}, in half precision |",
        f"| corpus | English Wikipedia articles ({', '.join(corpus['shards'])}): {corpus['train']['tokens']:,} tokens "
        f"of {corpus['train']['articles']:,} articles |",
        f"| held out | {corpus['held']['articles']:,} articles, {corpus['held']['tokens']:,} tokens, chosen by their "
        "text |",
        f"| vocabulary | {card['vocabulary']:,} lower-cased WordPieces, the same for the whole garden |",
        f"| steps | {card['steps']:,} of {card['batch']} sequences of {card['sequence_length']} tokens"
        f"{_masked(card)} |",
        f"| tokens | {card['tokens']:,} ({card['tokens'] / max(1, corpus['train']['tokens']):.1f} epochs) |",
        f"| learning rate | {card['learning_rate']:g}, warm-up, then straight down to 0; AdamW |",
        f"| seed | {card['seed']} |",
        f"| held-out loss | {losses}{_SUM.get(card['objective'], '')} |",
        f"| trained on | {card['device']}, torch {card['torch']}, {card['seconds']:,} s |",
        "",
        f"{_HEADS[card['objective']]} The dropout in config.json is for fine-tuning; pre-training had none.",
        "Sequences were cut from the articles' tokens one after another, with [SEP] between articles, without padding.",
        "",
        "Seeds of one recipe share the corpus, the vocabulary and the held-out articles. They differ in the initial",
        "weights, in the order and cut of the sequences, and in the masks.",
        "",
        "Made with",
        "",
        f"    {card['command']}",
        "",
        "A schedule by minutes depends on the machine; the same command gives a like model, not the same one.",
        "With `--steps` one machine gives the same model again.",
    ]
    if scores := card.get("scores"):
        lines += ["", "## Fine-tuned", "", *_scores(scores)]
    return "\n".join(lines) + "\n"


def _before(card: dict[str, Any]) -> str:
    share = card.get("masked_first")
    return f"; before that, for {share:.0%} of the time, masked tokens in the same blocks" if share else ""


def _masked(card: dict[str, Any]) -> str:
    steps = card.get("masked_steps")
    return f", the first {steps:,} on masked tokens" if steps else ""


def _scores(scores: dict[str, Any]) -> list[str]:
    lines = [
        "| task | score (mean of seeds) | each | untrained twin | majority |",
        "| --- | --- | --- | --- | --- |",
    ]
    for task, found in scores.items():
        if not found["seeds"]:
            continue  # only the twin is there yet
        each = ", ".join(f"{score:.3f}" for score in found["seeds"].values())
        twin = "" if found.get("random") is None else f"{found['random']:.3f}"
        mean = sum(found["seeds"].values()) / len(found["seeds"])
        edition = f" ({found['edition']})" if found.get("edition") else ""
        lines.append(f"| {task}{edition} | {mean:.3f} | {each} | {twin} | {found['majority']:.3f} |")
    return lines
