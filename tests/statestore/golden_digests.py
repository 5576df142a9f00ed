#!/usr/bin/env python3
"""Computes the constants of format_test.cc with hashlib and xxhash alone, from the formats' prose.

Run it by hand (pip install xxhash) when a format's version is raised, and never otherwise.
"""
import hashlib
import struct

import xxhash


def sha256(*pieces):
    return hashlib.sha256(b"".join(pieces)).digest()


fingerprint, salt = bytes(range(32)), bytes(range(100, 132))
numerics = sha256(b"cpu/fp32/test")
root = sha256(b"deltafill.root.1", b"\0", fingerprint, numerics, salt)
print("numerics", numerics.hex())
print("root    ", root.hex())
key = root
for block in range(3):
    tokens = [block * 64 + i * 7 for i in range(64)]
    key = sha256(b"\1", key, struct.pack("<64I", *tokens))
    print("key", block + 1, " ", key.hex())

layers = [3, 17]
payloads = [bytes((i * 5 + 1) % 256 for i in range(24)), bytes((i * 11 + 2) % 256 for i in range(24))]
header = b"DFPT" + struct.pack("<HBBII4IQQQ", 1, 1, 0, 1, len(layers), 1, 2, 3, 1, 4096, 0, 24)
header += struct.pack("<2I", *layers)
header += b"".join(struct.pack("<Q", xxhash.xxh3_64_intdigest(p)) for p in payloads)
header += struct.pack("<Q", xxhash.xxh3_64_intdigest(header))
print("header  ", header.hex())
print("part id ", sha256(salt, header, *payloads).hex())
