"""TensorFlow's side of the runner: everything that knows Keras models, optimizers and data sets.

Imported only in processes of jobs in TensorFlow. What it hands to the engine lies in torch tensors, which share their
memory with TensorFlow's where they can.
"""
