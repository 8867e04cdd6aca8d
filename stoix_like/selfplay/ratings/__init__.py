"""How strong candidates are: their lineage, and matches for the report. Imports files, pipeline and stages."""
