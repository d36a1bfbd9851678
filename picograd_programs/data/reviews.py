"""10,605 sentences of film reviews, each with the mean of twenty readers' ratings from -4 to 4.

Source: Hutto, Gilbert 2014, "VADER: a parsimonious rule-based model for sentiment analysis of social media text".
"""

from __future__ import annotations

import re

from picograd.errors import DataError
from picograd_programs.data.fetch import DataFile, SourceCarrier, get_files

REVIEWS_FILE = DataFile(
    "movieReviewSnippets_GroundTruth.txt", "c8293b0d942e90e223ea2c0955d969040d1a1be514a978b9af0698940bd13350", ()
)
WORD = re.compile(r"[a-z]+(?:'[a-z]+)?|[!?]")


def load_reviews() -> list[tuple[str, float]]:
    """Returns sentences and ratings.

    Raises:
      DataError: the file is corrupt, or no source has it.
    """
    carrier = SourceCarrier("vaderSentiment==3.3.2", "hutto_ICWSM_2014.tar.gz")
    text = get_files("reviews", [REVIEWS_FILE], carrier)[REVIEWS_FILE.name].decode()
    rows = [line.split("\t") for line in text.splitlines() if line]
    try:
        return [(sentence, float(rating)) for _, rating, sentence in rows]
    except ValueError as error:
        raise DataError(f"{REVIEWS_FILE.name}: a line must hold number, rating and sentence: {error}.") from None


def terms_of(text: str) -> list[str]:
    """Returns the words of a text, and its adjacent pairs.

    >>> terms_of("Not bad!")
    ['not', 'bad', '!', 'not_bad', 'bad_!']
    """
    words = WORD.findall(text.lower())
    return words + [f"{first}_{second}" for first, second in zip(words, words[1:])]
