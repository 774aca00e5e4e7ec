"""Finds words of the user's script that look like misspelt options of the platform. Pure.

Such a word still goes to the script, because WMLA's clients rely on that. The job's user is told of it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

_SHORTEST = 5
"""Shorter names are found in no spelling but their own: a script may well have a word like them."""
_ONE_LETTER, _TWO_LETTERS = 8, 12
"""From this length on a name may differ in one letter, or in two."""
_MOST_LOOKED_AT = 200
_MOST_TOLD = 5


def sentences(own: Iterable[str], names: Collection[str]) -> str:
    """Return sentences about words that look like one of ``names``, joined by semicolons; "" if there are none.

    A word may differ in case, in dashes, or by a plural ``s``. A word like a long name may also have one or two letters
    more, fewer, changed or swapped, if it begins with the same letter.

    Args:
        own: the script's words, of which those with two dashes are looked at, at most the first 200 different ones.
        names: the platform's options that were not given.
    """
    bare = {_bare(name): name for name in names if len(_bare(name)) >= _SHORTEST}
    words = dict.fromkeys(word.partition("=")[0] for word in own if word.startswith("--"))
    found = [(word, name) for word in list(words)[:_MOST_LOOKED_AT] if (name := _meant(_bare(word), bare))]
    told = [
        f"{word[:64]} went to the script, since the platform's option is {name}" for word, name in found[:_MOST_TOLD]
    ]
    if len(found) > _MOST_TOLD:
        told.append(f"so did {len(found) - _MOST_TOLD} more words like options of the platform")
    return "; ".join(told)


def _meant(word: str, names: dict[str, str]) -> str | None:
    exact = names.get(word) or names.get(word.removesuffix("s"))
    if exact is not None:
        return exact
    for name, option in names.items():
        most = 2 if len(name) >= _TWO_LETTERS else 1 if len(name) >= _ONE_LETTER else 0
        if most and word[:1] == name[0] and abs(len(word) - len(name)) <= most and _distance(word, name) <= most:
            return option
    return None


def _bare(word: str) -> str:
    return word.replace("-", "").replace("_", "").lower()


def _distance(one: str, other: str) -> int:
    """Return how many letters have to be added, left out, changed, or swapped with the next, to make one the other."""
    before: list[int] = []
    last = list(range(len(other) + 1))
    for i, letter in enumerate(one, 1):
        row = [i]
        for j, wanted in enumerate(other, 1):
            best = min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (letter != wanted))
            if i > 1 and j > 1 and letter == other[j - 2] and one[i - 2] == wanted:
                best = min(best, before[j - 2] + 1)
            row.append(best)
        before, last = last, row
    return last[-1]
