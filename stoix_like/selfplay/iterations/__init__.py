"""The table of stages, which one is due, and iterations in turn. Imports files, pipeline and stages."""
