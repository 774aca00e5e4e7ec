"""The routes of the API, one module for each resource.

``execs`` (jobs) and ``logon`` (signing in) are WMLA's, as its clients know them. The other modules are the platform's
own: agents, nodes, jobs, users and the rest of ``/api/v1``.
"""
