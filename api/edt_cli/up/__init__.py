"""``edt up``: runs the whole platform in one terminal, with each service as a child process.

It touches one folder (EDT_HOME), one port, and the processes that it started. Where to go next: ``command.py`` (the
commands), ``platform.py`` (start, watch, end), ``services.py`` (one child and its output), ``home.py`` (the folder).
"""
