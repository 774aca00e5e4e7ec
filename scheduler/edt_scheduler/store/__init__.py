"""The truth: tables and named queries. SQL is written here and nowhere else.

Every function takes the open connection of somebody's transaction first and commits nothing; one use case is
one transaction (``database.Database.transaction``). Rows come back as SQLAlchemy rows with the columns of
``tables``; what leaves the package is made of them in ``to_views``.
"""
