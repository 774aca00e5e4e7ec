"""Room: api, CLI. ``edt up``: the whole platform in one terminal, each room as a child process of its own.

Touches one folder (EDT_HOME), one port, and the processes it started. Where to go next: ``command.py`` (what is
typed), ``house.py`` (start, watch, end), ``parts.py`` (one child), ``home.py`` (the folder).
"""
