"""Changes the learning rate with the batch: rules, statistics of gradients, traces of batch sizes."""
