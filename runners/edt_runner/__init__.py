"""The processes that run on a node while a job trains.

``supervisor`` starts and watches the processes of one attempt. ``coordinator`` decides which engines train together.
``engine`` trains on one slot. ``driver`` runs the user's script. These processes exchange the messages of ``protocol``.
``comm`` transfers tensors between engines. ``frameworks`` adapts PyTorch and TensorFlow. ``schedule`` defines the
samples of each step, and ``loader`` loads them. ``checkpoints`` writes recovery checkpoints and the user's files.
``rsh`` starts commands on the other workers of a gang. Importing this package imports no framework.
"""
