"""The six stages, a file each, and what makes damaged outputs again. Imports files and pipeline."""
