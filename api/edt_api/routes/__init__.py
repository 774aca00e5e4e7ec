"""The resources, one module each: WMLA's as its clients know them, jobs (``execs``) and signing in (``logon``); the
platform's own, agents, nodes, jobs, users and the rest of ``/api/v1``.
"""
