"""The supervisor: the parent and fork server of all processes of one job on one node.

No user code runs in the supervisor, and the supervisor never has a second thread. So it can fork at any time. It
imports the framework once; after that, starting an engine costs a fork instead of seconds of imports.

* ``__main__``: reads the attempt spec and starts the supervisor
* ``supervisor``: the main loop
* ``agent_link``: receives desired states from the agent, and writes reports for the agent
* ``coordinator_link``: the connection to the coordinator, which on the head node is a child of this process
* ``fork_server``: forks all children
* ``engines``: starts, watches and measures engines
* ``users``: the Unix users that the supervisor and the script run as
"""
