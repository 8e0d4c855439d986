"""Draws that every backend must make: which of equally likely tokens Philox4x32-10 picks under a key and a counter.

Worked out in Python integers by `sampling.philox`, which the suite's own tests hold to the numbers that its authors
published with it.
"""

VOCABULARY = 1000

# (seed as an int64, sample, position, token): the token whose 32-bit word is the largest of the vocabulary's.
DRAWS = (
    (0, 0, 0, 554),
    (0, 0, 1, 191),
    (1, 0, 0, 34),
    (1, 0, 1, 588),
    (4294967295, 0, 0, 829),
    (4294967295, 0, 1, 451),
    (-9223372036854775808, 0, 0, 99),
    (-9223372036854775808, 0, 1, 50),
    (-1, 0, 0, 332),
    (-1, 0, 1, 825),
    (0, 1, 0, 52),
    (0, 1023, 0, 49),
    (7, 3, 1048576, 75),
    (7, 0, 2147483647, 164),
    (4712128852136459333, 5, 60828, 196),
    (8589221953160678911, 3, 108744, 389),
    (2893396244277848635, 1, 779707, 30),
    (-2426753002370701150, 3, 798507, 894),
    (1881095652490078568, 3, 27502, 909),
    (3997959117937236768, 6, 586117, 633),
    (-1543155630974664015, 6, 334714, 985),
    (-3741977441480111242, 1, 291016, 779),
    (-7056755462243325668, 7, 265707, 990),
    (32740364466686328, 0, 439261, 228),
)
