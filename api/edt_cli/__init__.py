"""``edt``: the command line of OpenEDT.

The commands speak HTTP with the API (httpx, ``edt_api.schemas``). ``edt up`` and ``edt agent`` start the services as
``python -m …``. The package imports no code of the services. Where to go next: ``main.py`` (the commands),
``session.py`` (requests to the API), ``up/`` (the whole platform in one terminal).
"""
