"""Known oddities of our English stay out of everything that people read."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PLACES = ("src", "docs", "benchmarks", "examples", "garden", "README.md", "CHANGELOG.md", "CONTRIBUTING.md")
KINDS = (".py", ".md", ".yaml", ".html", ".js")
UNITS = (
    "batch|block|choice|class|epoch|family|fold|head|layer|line|model|pair|plan|position|product|row|second|sentence|side|"
    "split|step|text|token|view|window|word"
)
COUNTED = (
    "one|entry|key|number|record|row|file|tensor|weight|labels|tokens|texts|rows|steps|sentences|numbers|sequences"
)
COMPARED = (
    "better|cheaper|difference|doubt|faster|finding|further|ground|harm|higher|larger|later|less|longer|lower|map|more|"
    "need|one|other|quicker|reason|room|smaller|such|way|wider|worse"
)
ODDITIES = {
    rf"\b({COUNTED}) an? ({UNITS})\b(?! (at|of|sees))": "say 'one row per sentence', not 'one row a sentence'",
    r"\bMind( that|:| the)\b": "say 'Note', not 'Mind'",
    r"\btold before\b": "say 'chosen before' or 'estimated beforehand', not 'told before'",
    r"\bfound out before\b": "say 'checked before', not 'found out before'",
    rf"(?<![Tt]here )\b(is|was) no (?!({COMPARED})\b)[a-z]+\b(?!\))": "say 'is not a file', not 'is no file'",
    r"\bbut for\b": "say 'except for', not 'but for'",
    r"(?i)\bthe first so many\b|\bso many (blocks|parameters|epochs|prompts)\b": "say 'the first N', not 'so many'",
    r"\b(could not|cannot|can) be had\b": "say 'could not be fetched', not 'could not be had'",
    r"(?i)\bmend(s|ed)?\b": "say 'fix', not 'mend'",
    r"\bwithout a word[;,]": "say 'silently', not 'without a word'",
    r"\b(answer|started|split words) otherwise\b": "say 'differently', not 'otherwise'",
    r"\bfrom [\d.]+ on\b": "say 'at least 0', not 'from 0 on'",
    r"\b(as usual|mean \(usual\))": "say 'the default'",
}
ALLOWED = ("which tokens a token sees", "how many numbers a block of it has")


def files() -> list[Path]:
    there = [ROOT / place for place in PLACES]
    inside = [path for place in there for path in ([place] if place.is_file() else place.rglob("*"))]
    apart = ("site", "cache", "build")
    return sorted(p for p in inside if p.suffix in KINDS and p.is_file() and not {*p.parts} & {*apart})


@pytest.mark.parametrize("pattern", ODDITIES)
def test_an_oddity_stays_out(pattern):
    odd = []
    for path in files():
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if re.search(pattern, line) and not any(allowed in line for allowed in ALLOWED):
                odd.append(f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}")
    assert not odd, f"{ODDITIES[pattern]}: {odd[:10]}"


def test_the_patterns_find_what_they_are_for():
    odd = ("one row a sentence", "Mind that rows are texts", "costs are told before the work", "tokens a second")
    odd += ("it is no checkpoint", "all but for one", "the first so many rows", "cannot be had here", "mend the file")
    assert all(any(re.search(pattern, text) for pattern in ODDITIES) for text in odd)
    assert not any(
        re.search(pattern, "one row per sentence, a batch at a time; there is no file, and it is no better")
        for pattern in ODDITIES
    )
