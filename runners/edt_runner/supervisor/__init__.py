"""The supervisor: parent of all processes of one job on one node, and their fork server.

No user code runs in it and it never has a second thread, so that it can fork at any time: it has imported the
framework once, and an engine costs a fork instead of seconds of imports.

``__main__`` reads the attempt spec, and ``supervisor`` is its life. ``agent_link`` says what to hold, and takes the
reports. The coordinator is reached by ``coordinator_link``; on the head node it is a child. ``fork_server`` forks all
children. ``engines`` are watched and measured. ``users`` keeps the script's user apart from this process's own.
"""
