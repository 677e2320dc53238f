"""A file system that answers until a file is read, and never again: a child of this process hangs
in it.

It is on a mount of its own, and ends with this process.
"""

import contextlib
import ctypes
import os
import signal
import struct
import sys

LIBRARY = ctypes.CDLL(None, use_errno=True)
NEW_MOUNTS, PRIVATE = 0x20000, 0x4C000
LOOKUP, GETATTR, OPEN, READ, INIT = 1, 3, 14, 15, 26
HEAD = struct.Struct("=IIQQIIII")


def attributes(inode):
    mode = 0o40755 if inode == 1 else 0o100644
    return struct.pack("=6Q10I", inode, 4096, 8, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)


def answer(code, inode):
    """What is answered to a request; None for an error."""
    if code == INIT:
        return struct.pack("=4IHHIIHH32x", 7, 31, 65536, 0, 12, 9, 65536, 1, 16, 0)
    if code == LOOKUP:
        return struct.pack("=4QII", 2, 1, 0, 0, 0, 0) + attributes(2)
    if code == GETATTR:
        return struct.pack("=QII", 0, 0, 0) + attributes(inode)
    return struct.pack("=QII", 1, 0, 0) if code == OPEN else None


def serve(device):
    while True:
        _, code, unique, inode, *_ = HEAD.unpack_from(os.read(device, 1 << 18))
        if code == READ:
            print("hangs", flush=True)
            signal.pause()
        found = answer(code, inode)
        body = b"" if found is None else found
        os.write(
            device, struct.pack("=IiQ", 16 + len(body), -38 if found is None else 0, unique) + body
        )


def main(folder):
    device = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={device},rootmode=40000,user_id=0,group_id=0".encode()
    if LIBRARY.unshare(NEW_MOUNTS) or LIBRARY.mount(b"none", b"/", None, PRIVATE, None):
        sys.exit("no mounts of its own")
    if LIBRARY.mount(b"hung", os.fsencode(folder), b"fuse", 0, options):
        sys.exit("no file system of its own")
    reader = os.fork()
    if reader == 0:
        # Who reads must not hold the other end: the kernel would wait for it for ever.
        os.close(device)
        with contextlib.suppress(OSError):  # the file system has ended
            os.read(os.open(f"{folder}/model", os.O_RDONLY), 10)
        os._exit(0)
    print(reader, flush=True)
    serve(device)


if __name__ == "__main__":
    main(sys.argv[1])
