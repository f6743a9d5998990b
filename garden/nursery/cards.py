"""The card of a model: `card.json` for programs, README.md for people, the same facts in both."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

CARD, PAGE = "card.json", "README.md"
UNFINISHED = "unfinished.json"  # the card of a model in training
_OBJECTIVES = {
    "masked": "masked language modelling: 15 % of the tokens, masked anew in every step (80 % [MASK], 10 % another "
    "token, 10 % as it was); no next-sentence loss",
    "replaced": "replaced-token detection: a small generator (not kept) fills 15 % of the tokens, the model finds "
    "which are not real",
    "causal": "causal language modelling: the next token",
    "permuted": "permutation language modelling: the last sixth of the tokens of a drawn order",
    "bidirectional": "two language models, one from either end: the next word (the one before) of a text, told by its "
    "first piece in the vocabulary; words are read by their characters",
}
_HEADS = {
    "masked": "The masked-LM head is kept: its output matrix is the embedding matrix, so it is small.",
    "replaced": "The detection head is kept.",
    "causal": "The output matrix is the embedding matrix.",
    "permuted": "The output matrix is the embedding matrix.",
    "bidirectional": "The output layer is not kept, as in the published files of ELMo.",
}
_WORDS = "bidirectional"  # what is counted are words, and there is no config.json

_ABOUT_CONFIG = "The dropout in config.json is for fine-tuning; pre-training had none."
_BETWEEN = {"tokens": "with [SEP] between articles", "words": "a mark at each end"}
_SUM = {"replaced": "; the loss is the generator's and 50 times that of detection"}


def read(folder: Path) -> dict[str, Any]:
    return json.loads((folder / CARD).read_text(encoding="utf-8"))


def write(folder: Path, card: dict[str, Any], finished: bool = True) -> None:
    """Both files; card.json last, since it says that the model is finished. One in training has another name."""
    (folder / PAGE).write_text(page(card), encoding="utf-8")
    partial = folder / f"{CARD}.partial"
    partial.write_text(json.dumps(card, indent=2) + "\n", encoding="utf-8")
    partial.replace(folder / (CARD if finished else UNFINISHED))
    if finished:
        (folder / UNFINISHED).unlink(missing_ok=True)


def page(card: dict[str, Any]) -> str:
    """The card as Markdown."""
    corpus, unit = card["corpus"], "words" if card["objective"] == _WORDS else "tokens"
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
        f"| corpus | English Wikipedia articles ({', '.join(corpus['shards'])}): {corpus['train']['tokens']:,} {unit} "
        f"of {corpus['train']['articles']:,} articles |",
        f"| held out | {corpus['held']['articles']:,} articles, {corpus['held']['tokens']:,} {unit}, chosen by their "
        "text |",
        f"| vocabulary | {card['vocabulary']:,} lower-cased WordPieces, the same for the whole garden |",
        f"| steps | {card['steps']:,} of {card['batch']} sequences of {card['sequence_length']} {unit}"
        f"{_masked(card)} |",
        f"| {unit} | {card['tokens']:,} ({card['tokens'] / max(1, corpus['train']['tokens']):.1f} epochs) |",
        f"| learning rate | {card['learning_rate']:g}, warm-up, then straight down{_down_to(card)}; AdamW |",
        f"| seed | {card['seed']} |",
        f"| held-out loss | {losses}{_SUM.get(card['objective'], '')} |",
        *_perplexity(card),
        f"| trained on | {card['device']}, torch {card['torch']}, {card['seconds']:,} s |",
        "",
        f"{_HEADS[card['objective']]} {_ABOUT_CONFIG if unit == 'tokens' else 'Pre-training had no dropout.'}",
        f"Sequences were cut from the articles' {unit} one after another, {_BETWEEN[unit]}, without padding.",
        "",
        "Seeds of one recipe share the corpus, the vocabulary and the held-out articles. They differ in the initial",
        "weights, in the order and cut of the sequences, and in the masks.",
        "",
        "Made with",
        "",
        f"    {card['command']}",
        "",
        *_cut_off(card),
        "A schedule by minutes depends on the machine; the same command gives a like model, not the same one.",
        "With `--steps` one machine gives the same model again.",
    ]
    if scores := card.get("scores"):
        lines += ["", "## Fine-tuned", "", *_scores(scores)]
    return "\n".join(lines) + "\n"


def _perplexity(card: dict[str, Any]) -> list[str]:
    """Of each direction, over the first pieces of held-out words."""
    if card["objective"] != _WORDS:
        return []
    both = ", ".join(f"{name} {math.exp(card['held_out'][name]):.1f}" for name in ("forward", "backward"))
    return [f"| held-out perplexity | {both} |"]


def _down_to(card: dict[str, Any]) -> str:
    share = card.get("share", 1.0)
    return " to 0" if share >= 1 else f", of which {share:.0%} was run"


def _cut_off(card: dict[str, Any]) -> list[str]:
    """A run that was stopped says so: its command makes a model that is trained longer."""
    share = card.get("share", 1.0)
    said = f"That run was stopped after {share:.0%} of its time; this is the model as it was then."
    return [] if share >= 1 else [said]


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
