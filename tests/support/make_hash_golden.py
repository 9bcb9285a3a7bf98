#!/usr/bin/env python3
"""Prints tests/unit/hash_golden.inc: values of the hashes in include/rd/hash.h, computed here from their
definitions.

    python3 tests/support/make_hash_golden.py > tests/unit/hash_golden.inc

The program checks itself first against published values: FNV-1a 64 against its authors' test vectors, SplitMix64
against the reference generator (seed 1234567). rd_hash and rd_hash_numbers are the project's own: nobody else
publishes values.
"""
MASK = (1 << 64) - 1
GOLDEN = 0x9E3779B97F4A7C15
SECRET = (0xA0761D6478BD642F, 0xE7037ED1A0B428DB, 0x8EBC6AF09C88C6E3)


def fnv_step(h, number):
    return (h ^ number) * 0x100000001B3 & MASK


def fnv(data, h=0xCBF29CE484222325):
    for byte in data:
        h = fnv_step(h, byte)
    return h


def fnv_mix(h, number, shift):
    h = fnv_step(h, number)
    return h ^ h >> shift


def mix64(z):
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def splitmix64(x):
    return mix64(x + GOLDEN & MASK)


def hash_numbers(numbers):
    h = 0
    for n in numbers:
        h = splitmix64(h ^ n)
    return h


def fold(a, b):
    product = a * b
    return product & MASK ^ product >> 64


def little(data):
    return int.from_bytes(data, "little")


def hash_bytes(seed, data):
    """Blocks of 16 bytes while more than 16 are left; the last 1 to 16 bytes as two numbers that may overlap."""
    n = len(data)
    h = seed ^ n * GOLDEN & MASK
    at = 0
    while n - at > 16:
        h = fold(little(data[at : at + 8]) ^ SECRET[0], little(data[at + 8 : at + 16]) ^ h)
        at += 16
    rest = data[at:]
    a = b = 0
    if len(rest) >= 8:
        a, b = little(rest[:8]), little(rest[-8:])
    elif len(rest) >= 4:
        a, b = little(rest[:4]), little(rest[-4:])
    elif rest:
        a = rest[0] << 16 | rest[len(rest) // 2] << 8 | rest[-1]
    return fold(fold(a ^ SECRET[1], b ^ h), SECRET[2] ^ n)


assert fnv(b"") == 0xCBF29CE484222325
assert fnv(b"a") == 0xAF63DC4C8601EC8C
assert fnv(b"foobar") == 0x85944171F73967E8
state = 1234567
for want in (6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431, 16408922859458223821):
    assert splitmix64(state) == want
    state = state + GOLDEN & MASK

sample = bytes(k * 37 + 11 & 255 for k in range(100))
numbers = [(0, 0, 0, 0), (1, 2, 3, 4), (4, 3, 2, 1), (MASK, 1 << 63, 5, 0)]
print("/* Written by tests/support/make_hash_golden.py. Byte k of the input is 37 k + 11 mod 256. */")
print("static const struct bytes_case {\n    uint64_t seed;\n    size_t n;\n    uint64_t want;\n} bytes_cases[] = {")
for seed in (0, 1, MASK):
    for n in (0, 1, 2, 3, 4, 7, 8, 15, 16, 17, 31, 32, 33, 48, 100):
        print(f"    {{{seed:#x}u, {n}, {hash_bytes(seed, sample[:n]):#x}u}},")
print("};\nstatic const struct numbers_case {\n    uint64_t number[4], want;\n} numbers_cases[] = {")
for four in numbers:
    print("    {{%s}, %#xu}," % (", ".join("%#xu" % n for n in four), hash_numbers(four)))
print("};\nstatic const struct mix_case {\n    uint64_t h, number;\n    int shift;\n    uint64_t want;\n} mix_cases[] = {")
for h, number, shift in [(0xCBF29CE484222325, 0, 29), (0xCBF29CE484222325, 0x3F800000, 31), (1, MASK, 29), (MASK, 7, 31)]:
    print(f"    {{{h:#x}u, {number:#x}u, {shift}, {fnv_mix(h, number, shift):#x}u}},")
print("};")
