"""The database: tables and named queries. No other package contains SQL.

Every function takes the open connection of its caller's transaction as its first argument and commits nothing. One use
case is one transaction (``database.Database.transaction``). Functions return SQLAlchemy rows with the columns of
``tables``. ``to_views`` turns them into the views that leave the package.
"""
