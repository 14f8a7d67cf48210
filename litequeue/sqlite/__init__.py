"""The SQLite engine, and the only importer of apsw.

Authority: the file, its locks and every transaction on it. States and decisions come from `rules`; this package finds
candidates and applies moves, each with a compare-and-set whose row count is checked. Failures leave as the errors of
`litequeue.errors`, translated in `failures`; a transaction that raised has been rolled back.
"""
