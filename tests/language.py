"""Small language models and texts for them."""

import numpy as np
import pandas
import torch
import zoo
from tokenizers import processors

import layerscope as ls

WORDS = ["file", "list", "value", "return", "object", "string", "and", "the", "of", "in", "this", "that", "not"]


def texts(count=12, seed=0, least=1, most=25):
    generator = np.random.default_rng(seed)
    return [" ".join(generator.choice(WORDS, size=generator.integers(least, most))) for _ in range(count)]


def frame(count=12, **options):
    return pandas.DataFrame({"text": texts(count, **options)})


def model(family="llama", kind="next", bos=None, **options):
    """A random model; with `bos` its tokenizer has a first token, and puts it in front itself where it is `adds`.

    Where it is `closes`, the tokenizer puts a last token after every text, too.
    """
    tokenizer = zoo.tokenizer(family)
    if bos is not None:
        tokenizer.bos_token = "[CLS]"
    if bos in ("adds", "closes"):
        special = [(token, tokenizer.convert_tokens_to_ids(token)) for token in ("[CLS]", "[SEP]")]
        template = "[CLS] $A" if bos == "adds" else "[CLS] $A [SEP]"
        tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(template, None, special)
    return ls.load(zoo.network(family, kind, **options), tokenizer=tokenizer)


@torch.inference_mode()
def token_losses(opened, ids):
    """The loss of every token after the first, in nats."""
    logits = opened.network(input_ids=torch.tensor([ids]), use_cache=False).logits[0, :-1].double()
    return torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:], dtype=torch.long), reduction="none").numpy()
