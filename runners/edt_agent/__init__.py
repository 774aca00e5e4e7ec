"""The agent of one node: it starts, adopts and ends supervisors, and sends their reports to the API.

The agent uses processes, /proc, its own folder, and the API over HTTP. It does not decide which job gets which slot,
and it never opens the database.

* ``agent``: the main loop; ``decide``: chooses the next actions (pure); ``attempt``: one supervisor
* ``assignments``, ``notifications``: fetch the assignments from the API
* ``report_delivery``, ``usage``: send reports and measurements to the API
* ``launchers``: start supervisors as processes or in containers
* ``spool``, ``spool_file``: read the supervisors' reports
* ``processes``, ``safe_files``: this machine's processes, the jobs' files
* ``slots``, ``gpus``, ``gpu_processes``: what this node offers, what NVML tells of its GPUs, who else uses them
* ``supervisor_records``: what the next agent must know about running supervisors
* ``settings``: reads the EDT_* variables
"""
