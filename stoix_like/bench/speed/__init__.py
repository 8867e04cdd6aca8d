"""The speed of environments, updates and searches, and how it scales. Imports timing."""
