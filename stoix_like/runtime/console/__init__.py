"""Messages, text formats, command lines and installed versions. Imports no other room of runtime."""
