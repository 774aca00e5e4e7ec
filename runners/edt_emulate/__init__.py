"""``edt emulate`` shows a user how elasticity changes the accuracy of a script under each learning-rate rule.

It trains a script that uses ``FabricModel`` on this machine: once for each rule, with the batch sizes of a trace, and
once with the fixed batch for which the script's learning rate was chosen.

* ``__main__``: reads the command line
* ``traces``: reads the trace; ``availability``: reads traces of devices
* ``emulator``: runs the trainings
* ``outcome``: computes the results; ``display``: shows them
"""
