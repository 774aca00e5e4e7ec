"""The supervisor: parent, zygote and reaper of all of one job's processes on one node. Room: runners.

No user code runs in it and it never has a second thread, so that it can fork at any time: it has imported the
framework once, and an engine costs a fork instead of seconds of imports. ``__main__`` reads the letter; ``loop``
is its life; ``doors`` let the world in; ``children`` starts and collects what ``child`` then is; ``outputs`` and the
room's ``spool`` keep what must outlast it.
"""
