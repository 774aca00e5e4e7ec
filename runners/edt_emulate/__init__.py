"""``edt emulate``: what would elasticity have done to my accuracy, under each learning-rate rule?

A script of ``FabricModel`` is trained on this machine once for each rule, under the sizes of a trace, and once with the
batch that its learning rate was chosen for. ``__main__`` reads the command line, ``traces`` the sizes (of devices:
``availability``), ``emulator`` runs the trainings, ``outcome`` computes their figures, and ``display`` shows them.
"""
