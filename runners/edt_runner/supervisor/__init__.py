"""The supervisor: the parent and fork server of all processes of one job on one node.

No user code runs in the supervisor, and the supervisor never has a second thread. So it can fork at any time. It
imports an elastic job's framework once; after that, starting an engine costs a fork instead of seconds of imports.

* ``__main__``: reads the attempt spec and starts the supervisor
* ``supervisor``: the main loop, and what supervisors of elastic jobs and of gangs have in common
* ``elastic``: the supervisor of an elastic job
* ``coordinator_link``: its connection to the coordinator, which on the head node is a child of this process
* ``fork_server``: forks its driver and its engines
* ``engines``: starts and watches its engines
* ``gang``: the supervisor of a gang
* ``gang_layout``: which processes a gang has, and on which nodes
* ``gang_environment``: the variables by which they find each other
* ``gang_processes``: starts them, and describes how they ended
* ``agent_link``: receives desired states from the agent, and writes reports for the agent
* ``shared_folder``: files by which supervisors learn about the attempt when messages do not arrive
* ``forking``, ``logs``, ``process_environment``: forks children, stores their output, sets their variables
* ``usage``: measures what they use
* ``users``: the Unix users that the supervisor and the script run as
"""
