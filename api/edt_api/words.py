"""Cutting a command line into words as a shell would, remembering where each word stood. Room: api. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from edt_api.errors import ArgumentsInvalid

_ESCAPED_IN_DOUBLE_QUOTES = '"\\$`'


@dataclass(frozen=True)
class Word:
    """One word, quotes taken off; ``line[start:end]`` is what was typed."""

    text: str
    start: int
    end: int


def split(line: str) -> tuple[Word, ...]:
    """The words of ``line``: blanks in any number part them, quotes and backslashes work as in a shell.

    A backslash before a line's end joins the lines. Nothing is expanded. Raises ArgumentsInvalid for a quote
    that is never closed and a backslash that escapes nothing.
    """
    words: list[Word] = []
    at = 0
    while at < len(line):
        if line[at].isspace():
            at += 1
        elif (joined := _line_joint(line, at)) > at:
            at = joined
        else:
            text, end = _word(line, at)
            words.append(Word(text, at, end))
            at = end
    return tuple(words)


def _word(line: str, start: int) -> tuple[str, int]:
    """The word that begins at ``start``, and where it ends."""
    parts: list[str] = []
    at = start
    while at < len(line) and not line[at].isspace():
        letter = line[at]
        if (joined := _line_joint(line, at)) > at:
            at = joined
        elif letter == "\\":
            if at + 1 == len(line):
                raise ArgumentsInvalid("args", "a backslash at its very end", "something after a backslash")
            parts.append(line[at + 1])
            at += 2
        elif letter in "'\"":
            text, at = _quoted(line, at)
            parts.append(text)
        else:
            parts.append(letter)
            at += 1
    return "".join(parts), at


def _quoted(line: str, start: int) -> tuple[str, int]:
    """What stands between the quote at ``start`` and its fellow, and the place after that."""
    quote = line[start]
    parts: list[str] = []
    at = start + 1
    while at < len(line):
        letter = line[at]
        if letter == quote:
            return "".join(parts), at + 1
        if quote == '"' and letter == "\\":
            if (joined := _line_joint(line, at)) > at:
                at = joined
                continue
            if line[at + 1 : at + 2] and line[at + 1] in _ESCAPED_IN_DOUBLE_QUOTES:
                at += 1
        parts.append(line[at])
        at += 1
    raise ArgumentsInvalid(
        "args",
        f"a {quote} at character {start + 1} that is never closed",
        "quotes in pairs, or \\' for one alone",
    )


def _line_joint(line: str, at: int) -> int:
    """The place after a backslash that stands before a line's end, or ``at`` where there is none."""
    for joint in ("\\\n", "\\\r\n"):
        if line.startswith(joint, at):
            return at + len(joint)
    return at
