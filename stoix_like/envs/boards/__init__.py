"""Board games as `BoardGame`s, by name. The rules are our own: those of pgx, several times as fast.
Imports ringrift.
"""
