"""``edt emulate``: what would elasticity have done to my accuracy, under each learning-rate rule? Room: runners.

A script of ``FabricModel`` is trained on this machine once for each rule, under the sizes of a trace, and once with the
batch that its learning rate was chosen for. Touches the processes it starts and the files it is told to write. Where to
go next: ``__main__`` (what is typed), ``trace`` (what the sizes come from), ``plan`` (at which position each begins),
``trial`` (one training), ``record`` (what it left), ``outcome`` (the figures), ``table`` and ``picture``.
"""
