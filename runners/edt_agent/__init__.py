"""The agent, one for each node: it starts, adopts and ends supervisors, and delivers their reports to the API.

It uses processes, /proc, its own folder and the API over HTTP. It does not decide who gets which slot, and it never
opens the database.

* ``agent``: the loop; ``decide``: what to do next (pure); ``attempt``: one supervisor
* ``assignments``, ``notifications``: what the API wants; ``report_delivery``, ``usage``: what the agent sends it
* ``launchers``: what supervisors run in; ``spool``, ``spool_file``: their reports
* ``processes``, ``safe_files``, ``slots``: this machine's processes, files of jobs, GPUs
* ``supervisor_records``: what the next agent must know; ``settings``: EDT_* variables
"""
