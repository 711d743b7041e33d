"""Rank passages by how well they answer a query: BM25, and a threshold below which nothing is an answer.

1. A passage's score is BM25's over the terms of the query, each counted once; of a very long query only the most
   telling terms count.
2. Of nearly equal passages the newer wins: up to `RECENCY` is added by how late in the thread one stands.
3. A match must hold terms that weigh at least `ASKED` of the whole query's where it is a question, `TOLD` where it is
   none (who tells something seldom needs to be reminded), and nearly as much as one term that occurs nowhere else: a
   few frequent words never match, whatever their language.
4. A passage that says next to nothing beyond the query is no match.
5. What scores less than `RELATIVE` of the best match is left out.
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from transom.policies.passages import Passage, bit, bounded
from transom.policies.terms import terms

K1, B = 1.2, 0.75  # BM25's usual parameters
MOST_TERMS = 32
RECENCY = 0.15
ASKED, TOLD = 0.2, 0.4
RARE = 0.95  # of the weight of a term that occurs in one passage only
RELATIVE = 0.5
_QUESTION = re.compile("[?\uff1f\u061f\u037e\u055e\u1367]")
LEAST_NEWS = 2  # terms of a passage that are not the query's


@dataclass(frozen=True, slots=True)
class Match:
    """A passage that answers the query; `rarest` is the rarest of the query's terms in it."""

    position: int
    passage: Passage
    score: float
    rarest: str


def coverage(text: str) -> float:
    """Return the share of a query's weight that a match must hold (rule 3)."""
    return ASKED if _QUESTION.search(text) else TOLD


def query_terms(text: str) -> list[str]:
    """Return the distinct terms of a query: at most `MOST_TERMS`, those with digits first, then the longest."""
    found = list(dict.fromkeys(terms(text)))
    if len(found) <= MOST_TERMS:
        return found
    return sorted(found, key=lambda term: (not any(c.isdigit() for c in term), -len(term)))[:MOST_TERMS]


def ranked(
    query: Sequence[str], found: Sequence[tuple[int, Passage]], length: int, share: float = ASKED
) -> list[Match]:
    """Return the matches among passages, each with its position in a thread of `length` messages, best first.

    `share` of the query's weight must be in a match.
    """
    scores = [0.0] * len(found)
    held = [0.0] * len(found)
    masks = [passage.mask for _, passage in found]
    news = [passage.length for _, passage in found]
    rarest: list[tuple[float, int, str]] = [(0.0, 0, "")] * len(found)
    average = sum(passage.length for _, passage in found) / max(1, len(found)) or 1.0
    norms = [K1 * (1 - B + B * passage.length / average) for _, passage in found]
    whole = 0.0
    for term in query:
        mark, one = bounded(term), bit(term)
        hits = [(at, n) for at, mask in enumerate(masks) if mask & one and (n := found[at][1].terms.count(mark))]
        weight = _weight(len(found), len(hits))
        whole += weight
        for at, n in hits:
            scores[at] += weight * n * (K1 + 1) / (n + norms[at])
            held[at] += weight
            news[at] -= n
            rarest[at] = max(rarest[at], (weight, len(term), term))
    least = max(whole * share, _weight(len(found), 1) * RARE)
    matches = [
        Match(position, passage, scores[at] * (1 + RECENCY * position / length), rarest[at][2])
        for at, (position, passage) in enumerate(found)
        if held[at] >= least and news[at] >= LEAST_NEWS
    ]
    matches.sort(key=lambda m: (-m.score, -m.position, m.passage.start))
    return [m for m in matches if m.score >= matches[0].score * RELATIVE]


def _weight(passages: int, holding: int) -> float:
    """Return a term's inverse document frequency, never negative."""
    return math.log(1 + (passages - holding + 0.5) / (holding + 0.5))
