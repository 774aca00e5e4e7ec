"""What runs on a node while a job trains.

``supervisor`` starts and watches the processes of one attempt, ``coordinator`` decides which engines train together,
``engine`` trains, and ``driver`` runs the user's script. They talk by the messages of ``protocol``. ``comm`` moves the
bytes between engines, ``frameworks`` adapts PyTorch and TensorFlow, ``schedule`` says what each step works on,
``loader`` loads it, and ``checkpoints`` writes what must not be lost. Importing this package imports no framework.
"""
