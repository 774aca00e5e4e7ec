"""The scheduler on a virtual clock: recorded workloads, the platform's own policy, and published ones beside it.

``python -m edt_scheduler.simulate WORKLOAD --policy …`` starts it. A simulated training follows the rules of the
simulator that came with Pollux (OSDI 2021): the step times and the statistics of the gradients are those that were
measured, and every change of a job's GPUs costs it a fixed pause. So the figures can be compared with published ones.

``applications`` holds what was measured, ``workload`` reads who submits what and when, ``traces`` finds both, and
``small`` is a workload of our own. ``training`` is one job, ``cluster`` runs all of them against a policy. ``platform``
and ``adaptive`` ask the platform's own plan, ``rivals`` has the published policies, ``bounds`` says what no policy can
beat. ``metrics``, ``report`` and ``gantt`` say what came of it.
"""
