"""Parameter files and exported policies, which are read without their run. Imports console and storage."""
