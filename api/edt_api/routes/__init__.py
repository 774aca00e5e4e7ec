"""The routes of the API, one module for each resource.

``execs`` (jobs), ``applications`` (jobs as its scheduler shows them), ``configuration`` (settings, plans, frameworks),
``conductor`` (what WMLA 1.2 asks of Spectrum Conductor), ``legacy`` (what the platform does not do) and ``logon``
(signing in) are WMLA's, as its clients know them. The other modules are the platform's own: agents, nodes, jobs, users
and the rest of ``/api/v1``.
"""
