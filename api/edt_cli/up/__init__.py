"""``edt up``: the whole platform in one terminal, each service as a child process of its own.

Touches one folder (EDT_HOME), one port, and the processes it started. Where to go next: ``command.py`` (what is
typed), ``platform.py`` (start, watch, end), ``services.py`` (one child and its output), ``home.py`` (the folder).
"""
