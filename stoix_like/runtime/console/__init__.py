"""Messages, numbers as text, how commands are typed, and what is installed. Imports no other room of runtime."""
