"""Room: runners. The agent: a node's hands. It starts, keeps, adopts and ends supervisors, and carries their reports.

It may touch processes, /proc, its own folder and the API over HTTP. It decides nothing about who gets which slot,
never opens the database, and imports of the runner only the letter (``edt_runner.contract``). Where to go next:
``agent.py`` (the loop), ``decide.py`` (what to do, pure), ``attempt.py`` (one supervisor as the agent knows it),
``doorbell.py`` (how a message wakes the loop).
"""
