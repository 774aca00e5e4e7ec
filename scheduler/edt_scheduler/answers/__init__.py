"""Answers about the plan, from the plan itself: why a job waits or has as many slots, when it starts, and what if.

Every answer is made by calling ``plan`` on a state, or on a state that was changed as a question asks. So an answer can
never differ from what the scheduler does. Like ``plan`` these functions are pure: the caller hands in the state, and a
function that says when the time for an answer is over.
"""
