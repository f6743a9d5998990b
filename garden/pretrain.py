"""Pre-train the garden's models: `vocabulary`, `tokenise`, `words`, `train`. Every step is seeded and can be resumed.

python garden/pretrain.py vocabulary corpus/*.txt.xz --out garden/tokenizer
python garden/pretrain.py tokenise corpus/*.txt.xz --tokenizer garden/tokenizer --cache cache
python garden/pretrain.py train bert corpus/*.txt.xz --seed 0 --minutes 5 --out models/bert-s0
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from nursery import corpus, vocabulary  # noqa: E402 (the path above is where they are)


def main(arguments: list[str] | None = None) -> None:
    options = _parser().parse_args(arguments)
    options.run(options)


def make_vocabulary(options: argparse.Namespace) -> None:
    """Every n-th article of the shards, so that a sample is drawn from all of them; held-out articles have no say."""
    texts = [
        paragraph
        for i, article in enumerate(corpus.articles(options.shards))
        if i % options.every == 0 and not corpus.is_held_out(article)
        for paragraph in article
    ]
    tokenizer = vocabulary.train(texts, options.size)
    vocabulary.save(tokenizer, options.out)
    print(f"{tokenizer.get_vocab_size():,} pieces from {sum(map(len, texts)):,} characters, in {options.out}")


def make_tokens(options: argparse.Namespace) -> None:
    started = time.perf_counter()
    folder = corpus.tokenise(options.shards, options.tokenizer, options.cache, options.workers)
    parts = corpus.Corpus(folder).meta
    print(f"{parts['train']} {parts['held']} in {folder}, {time.perf_counter() - started:.0f} s")


def make_words(options: argparse.Namespace) -> None:
    from nursery.words import number_words

    started = time.perf_counter()
    folder = number_words(options.shards, options.tokenizer, options.cache, options.longest, options.workers)
    parts = corpus.Corpus(folder).meta
    print(f"{parts['train']} {parts['held']} in {folder}, {time.perf_counter() - started:.0f} s")


def make_model(options: argparse.Namespace) -> None:
    from nursery import running

    running.run(options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)

    command = commands.add_parser("vocabulary", help="train the shared WordPiece vocabulary")
    command.add_argument("shards", type=Path, nargs="+")
    command.add_argument("--out", type=Path, default=HERE / "tokenizer")
    command.add_argument("--size", type=int, default=8000)
    command.add_argument("--every", type=int, default=4, help="take one article in N (default: 4)")
    command.set_defaults(run=make_vocabulary)

    command = commands.add_parser("tokenise", help="tokenise the corpus, once")
    _corpus_options(command)
    command.set_defaults(run=make_tokens)

    command = commands.add_parser("words", help="number the words of the corpus, once, for networks of characters")
    _corpus_options(command)
    command.add_argument("--longest", type=int, default=32, help="characters of a word (default: 32)")
    command.set_defaults(run=make_words)

    command = commands.add_parser("train", help="pre-train one model")
    command.add_argument("recipe", help="a name in garden/recipes, or a YAML file")
    _corpus_options(command)
    command.add_argument("--seed", type=int, default=0)
    length = command.add_mutually_exclusive_group()
    length.add_argument("--steps", type=int, help="train for N steps")
    length.add_argument("--minutes", type=float, help="train so long, from the end of the first step on")
    command.add_argument("--out", type=Path, required=True)
    command.add_argument("--device", default=None, help="default: the first GPU, else the CPU")
    command.add_argument("--batch", type=int, default=None, help="sequences per step, instead of the recipe's")
    command.add_argument("--compile", action=argparse.BooleanOptionalAction, default=None)
    command.add_argument("--every", type=float, default=60.0, help="seconds between held-out losses and checkpoints")
    command.set_defaults(run=make_model)
    return parser


def _corpus_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("shards", type=Path, nargs="+")
    command.add_argument("--tokenizer", type=Path, default=HERE / "tokenizer")
    command.add_argument("--cache", type=Path, default=HERE / "cache")
    command.add_argument("--workers", type=int, default=None)


if __name__ == "__main__":
    main()
