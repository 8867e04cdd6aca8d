"""What may become of a file: a bit of it changes, it is cut off, another one stands in its place, or it is gone."""

import shutil
import zipfile


def flip(path, _other=None):
    """One bit, under all names of the file; of an archive, the last of an array that is not compressed."""
    content = bytearray(path.read_bytes())
    place = len(content) // 2
    if path.suffix == ".npz":
        with zipfile.ZipFile(path) as archive:
            member = next(one for one in archive.infolist() if one.compress_type == zipfile.ZIP_STORED)
        start = member.header_offset + 30 + len(member.filename)
        place = start + content[member.header_offset + 28] + member.compress_size - 1  # behind the extra field
    content[place] ^= 1
    with path.open("r+b") as file:
        file.write(content)


#: {kind of damage: what does it to a file; `other` is a whole file of the same kind}.
DAMAGES = {
    "a bit": flip,
    "cut off": lambda path, other: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
    "another": lambda path, other: shutil.copyfile(other, path),
    "gone": lambda path, other: path.unlink(),
}
