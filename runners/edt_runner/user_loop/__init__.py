"""A training whose loop the user has written: the loop's body computes the micro-batches of the engine."""
