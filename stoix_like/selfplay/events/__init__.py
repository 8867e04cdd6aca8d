"""`events.sqlite`: what has happened, who receives it, and what loops keep. Imports files and iterations."""
