#!/usr/bin/env python3
"""poison.py FILE.npz ARRAY ROW VALUE -- sets all numbers of a row of a checkpoint's array, and its checksum."""
import json, struct, sys, zipfile

def crc32c(data):
    """CRC-32C (Castagnoli), bit by bit."""
    table = []
    for n in range(256):
        for _ in range(8):
            n = n >> 1 ^ 0x82F63B78 if n & 1 else n >> 1
        table.append(n)
    c = 0xFFFFFFFF
    for b in data:
        c = table[(c ^ b) & 255] ^ c >> 8
    return c ^ 0xFFFFFFFF

path, name, row, value = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
with zipfile.ZipFile(path) as z:
    files = {n: z.read(n) for n in z.namelist()}
manifest = json.loads(files["manifest.json"])
entry = next(a for a in manifest["arrays"] if a["name"] == name)
npy = files[name + ".npy"]
head = 10 + struct.unpack("<H", npy[8:10])[0]
width = 4 * (entry["shape"][1] if len(entry["shape"]) > 1 else 1)
data = bytearray(npy[head:])
data[row * width:(row + 1) * width] = struct.pack("<f", value) * (width // 4)
entry["crc32c"] = "%08x" % crc32c(data)
files[name + ".npy"] = npy[:head] + bytes(data)
files["manifest.json"] = json.dumps(manifest).encode()
with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
    for n, d in files.items():
        z.writestr(n, d)
