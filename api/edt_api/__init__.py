"""The front door: requests, responses, and who may ask. Room: api.

``main.create_app`` is the application, ``python -m edt_api`` the process. What it answers is decided and
stored by ``edt_scheduler.operations``; here are the wire's shapes (``schemas``), the grammar of ``args``
(``arguments``), uploads (``uploads``, ``archives``), the doors (``access``, ``auth``) and one module a
resource. The room knows no SQL, no queue and no process of a job. Importing this package costs nothing, and
``schemas`` needs pydantic alone.
"""
