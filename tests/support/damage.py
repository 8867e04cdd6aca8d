"""What may befall a file on disk: one battery for the readers of every format."""

import pickle


def _half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _flipped(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0x01
    path.write_bytes(bytes(content))


def _folder(path):
    path.unlink()
    path.mkdir()


#: {name: what it does to the file at a path}
DAMAGES = {
    "removed": lambda path: path.unlink(),
    "empty": lambda path: path.write_bytes(b""),
    "half": _half,
    "flipped": _flipped,
    "text": lambda path: path.write_bytes(b"no file of ours, but a text"),
    "pickle": lambda path: path.write_bytes(pickle.dumps({})),
    "list": lambda path: path.write_bytes(b"[]"),
    "folder": _folder,
}
