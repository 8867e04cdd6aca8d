"""Worlds of cells that are also text: FrozenLake, Sokoban and Sudoku as pure functions, and their exact ceilings."""
