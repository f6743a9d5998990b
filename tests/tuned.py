"""The real MiniLM, tuned for a few steps on pydocs: the smallest classifier that has really learned something."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModelForSequenceClassification

import layerscope as ls


def make(folder: Path, steps: int = 100, seed: int = 0) -> None:
    """A classifier of docstrings; embeddings and blocks 1 and 2 stay as they were, which is quicker."""
    base, task = ls.load("demo:minilm"), ls.task("pydocs")
    examples = task.split("train")
    names = dict(enumerate(task.label_names))
    torch.manual_seed(seed)
    network = AutoModelForSequenceClassification.from_pretrained(base.network.name_or_path, num_labels=len(names))
    network.config.id2label, network.config.label2id = names, {v: k for k, v in names.items()}
    for frozen in (network.bert.embeddings, *network.bert.encoder.layer[:2]):
        frozen.requires_grad_(False)
    optimizer = torch.optim.AdamW([p for p in network.parameters() if p.requires_grad], 3e-4)
    generator = torch.Generator().manual_seed(seed)
    network.train()
    for _ in range(steps):
        chosen = torch.randint(len(examples), (16,), generator=generator).tolist()
        batch = base.tokenizer(
            [examples.texts[i] for i in chosen], padding=True, truncation=True, max_length=20, return_tensors="pt"
        )
        network(**batch, labels=torch.tensor(examples.labels[chosen])).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    network.eval().save_pretrained(folder)
    base.tokenizer.save_pretrained(folder)
