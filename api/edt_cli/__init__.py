"""Room: api. ``edt``: what a person types.

It speaks HTTP with the API (httpx, ``edt_api.schemas``) and, for ``edt up`` and ``edt agent``, starts the rooms as
``python -m …``; of the rooms' insides it imports nothing. Where to go next: ``main.py`` (the commands),
``session.py`` (one conversation with the API), ``up/`` (the whole house in one terminal).
"""
