"""The runners' room: what happens on a node.

``contract`` is the paper that crosses the walls; ``supervisor`` starts and watches the processes of one attempt;
``coordinator`` owns the job's generations; ``engine`` is the framework-neutral training; ``pytorch``, ``tensorflow``
and ``dataplane`` are its hands. Importing this package costs nothing and imports no framework.
"""
