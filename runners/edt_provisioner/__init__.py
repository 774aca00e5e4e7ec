"""Provisioners: they get nodes for the platform from another cluster manager, and give them back.

``loop`` compares what the API wants with what the cluster manager has (``decide``, pure), and lets a ``Cluster`` create
and end the difference. ``process``, ``kubernetes`` and ``slurm`` are such clusters. Each node runs
``python -m edt_agent.temporary``.
"""
