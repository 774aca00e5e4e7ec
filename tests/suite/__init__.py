"""How the whole suite is run: two lanes side by side, two tiers, and one more try for a test that failed.

`make test` starts ``python -m suite``. Pure: ``requirements`` (what must be present), ``lanes`` (where a test runs),
``share`` (which tests of the second tier a commit runs), ``forgiveness`` (what may fail once), ``account`` (what
came of it, as text). ``plugin`` is the part inside pytest, ``running`` starts the processes and watches them.
"""
