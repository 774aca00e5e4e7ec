"""What the runner asks of a framework (``trainable``, ``framework``; ``edt_runner.adapter`` in the engine), the layout
of flat vectors (``flat``), and the two frameworks' sides (``pytorch``, ``tensorflow``)."""
