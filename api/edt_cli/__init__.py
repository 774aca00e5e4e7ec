"""``edt``: what a person types.

It speaks HTTP with the API (httpx, ``edt_api.schemas``) and, for ``edt up`` and ``edt agent``, starts the services as
``python -m …``; it imports nothing of theirs. Where to go next: ``main.py`` (the commands),
``session.py`` (one conversation with the API), ``up/`` (the whole platform in one terminal).
"""
