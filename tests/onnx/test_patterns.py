"""Regular expressions are matched as Python matches them, in time that grows with the text alone."""

from __future__ import annotations

import random
import re

import pytest

from picograd.errors import ArgumentError, UnsupportedOp
from picograd_onnx.operators.text import STEPS_MAX, Pattern

pytestmark = pytest.mark.req("C10")

EXPRESSIONS = [
    "", "a", "ab|cd", "(a|b)*c", "a+?b*", "[a-c]+[^d-z]", r"\w+@\w+\.com", r"(\W|^)[\w.\-]{0,25}@(yahoo|gmail)\.com(\W|$)",
    r"www\.[\w.-]+\bcom\b", "a{2,3}b{0}", "(?i)AbC", "(?i:a)b", ".*", "(?s).*", "^a$", r"\Aa\Z", r"a\Bb", "(a*)*",
    "(a|a)*b", "((a?){3}){2}", r"[\d\s]+", "[^\\w]", "(?:ab){1,}", "(?m)^a$\n^b$", "[]a-]", r"\x41é",
]  # fmt: skip
ALPHABET = "aabbccdA1 .@\n-é"


def test_matches_what_python_matches() -> None:
    rng = random.Random(0)
    texts = ["".join(rng.choices(ALPHABET, k=rng.randrange(7))) for _ in range(300)]
    texts += ["me@gmail.com", "www.onnx.com", "ABC", "aBc", "a\nb", "aab", "abab", "Aé", "a\n"]
    matched = 0
    for expression in EXPRESSIONS:
        pattern = Pattern(expression)
        ours = [pattern.matches(text) for text in texts]
        assert ours == [re.fullmatch(expression, text) is not None for text in texts], expression
        matched += sum(ours)
    assert matched > 700


@pytest.mark.parametrize("expression", ["(a+)+$", "(a|a)*$", "(a*)*b", "(.*a){12}", r"(\w+\s?)*$", "(a?){30}a{30}b"])
def test_steps_do_not_double_with_each_letter(expression: str) -> None:
    pattern = Pattern(expression)
    assert not pattern.matches("a" * 2000 + "!") or expression.startswith("(.*a)")
    assert pattern.steps < STEPS_MAX // 4


def test_what_cannot_be_matched_so_is_refused() -> None:
    with pytest.raises(ArgumentError, match=r"'\(a' is not a regular expression: missing \), unterminated subpattern"):
        Pattern("(a")
    with pytest.raises(UnsupportedOp, match=r"GROUPREF in the regular expression '\(a\)\\\\1' is not supported\."):
        Pattern(r"(a)\1")
    for large in ("(a{1000}){1000}", "((()|){1000}){1000}", "((a{99}){99}){99}"):
        with pytest.raises(UnsupportedOp, match="has more than 10000 places"):
            Pattern(large)
    with pytest.raises(ArgumentError, match="takes more than 1048576 steps"):
        Pattern("(.*a.{9}){0,99}").matches("".join(random.Random(1).choices("ab", k=9999)))
    with pytest.raises(ArgumentError):
        Pattern("(" * 5000 + ")" * 5000)
