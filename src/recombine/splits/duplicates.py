"""Rows that say the same: exact duplicates by their content, near ones by the parts they share.

Near duplicates are found by MinHash: the smallest of many hashes of a text's shingles (runs of
characters or words) agree about as often as the texts' sets of shingles overlap. Texts that agree
in a whole band of hashes are compared in full, so what is reported is true; what is missed is
bounded by `miss_probability`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from scipy import sparse
from scipy.sparse import csgraph

from recombine.errors import InvalidRequest, unknown

HASHES = 128
MISSED = 1e-4  # at the threshold itself; more alike texts are missed less
SMALL = 64  # a bucket up to this size is compared in full
LEADERS = 32  # rounds of comparing a larger bucket with one of its members
_BATCH = 2**22  # shingles held at a time
_PAIRS = 2**14  # pairs compared at a time


@dataclass(frozen=True)
class Shingles:
    """What texts are cut into: runs of `length` characters, or of words."""

    of: str = "characters"
    length: int = 5

    def __post_init__(self) -> None:
        if self.of not in ("characters", "words"):
            raise unknown("kind of shingle", self.of, ("characters", "words"))
        if self.length < 1:
            raise InvalidRequest(f"length={self.length}: a shingle has at least one of {self.of}")


CHARACTERS = Shingles()


def content_labels(contents: Iterable[str | bytes]) -> Int[np.ndarray, " row"]:
    """The same number for rows of the same content.

    >>> content_labels(["a", "b", "a"]).tolist()
    [0, 1, 0]
    """
    digests = bytearray()
    for one in contents:
        data = one if isinstance(one, bytes) else one.encode("utf-8", "surrogatepass")
        digests += hashlib.blake2b(data, digest_size=8).digest()
    keys = np.frombuffer(bytes(digests), np.uint64)
    _, first, labels = np.unique(keys, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[labels]


def normal(text: str) -> str:
    """A text as near duplicates see it: without case, and with single spaces."""
    return " ".join(text.lower().split())


def jaccard(one: str, other: str, shingles: Shingles = CHARACTERS) -> float:
    """The share of shingles two texts have in common, of all they have.

    >>> jaccard("a red cube", "A  red cube"), jaccard("abcdef", "uvwxyz")
    (1.0, 0.0)
    """
    codes = _Codes([normal(one), normal(other)], shingles)
    return float(codes.similarity(np.array([0]), np.array([1]))[0])


def bands(near: float) -> tuple[int, int]:
    """How many bands of how many hashes find texts so alike: the longest that miss few."""
    for length in range(HASHES, 0, -1):
        if miss_probability(near, HASHES // length, length) <= MISSED:
            return HASHES // length, length
    return HASHES, 1


def miss_probability(near: float, count: int, length: int) -> float:
    """The chance that two texts, alike to this degree, agree in no band."""
    return (1 - near**length) ** count


def near_pairs(
    texts: Sequence[str], near: float = 0.9, *, shingles: Shingles = CHARACTERS, seed: int = 0
) -> Int[np.ndarray, "pair 2"]:
    """Pairs of different texts whose shingles overlap by at least `near` (Jaccard), verified.

    Texts that are equal once case and spaces are normal are one text here: only the first of them
    appears. Empty texts are like nothing. In a crowd of more than 64 texts that agree in a band,
    pairs are compared through leaders, so that some pairs inside a crowd may stay unnamed although
    their cluster is found.

    >>> near_pairs(["a red cube on a table", "a red cube on the table", "rain"], 0.5).tolist()
    [[0, 1]]
    """
    if not 0 < near <= 1:
        raise InvalidRequest(f"near={near}: expected more than 0 and at most 1, such as .9")
    plain = [normal(text) for text in texts]
    _, first = np.unique(content_labels(plain), return_index=True)
    places = np.array([p for p in first if plain[p]], np.int64)
    ordered = np.sort(places[_alike([plain[p] for p in places], near, shingles, seed)], axis=1)
    return ordered[np.lexsort(ordered.T[::-1])]


def near_labels(
    texts: Sequence[str], near: float = 0.9, *, shingles: Shingles = CHARACTERS, seed: int = 0
) -> Int[np.ndarray, " row"]:
    """The same number for texts that a chain of near duplicates joins; empty texts stand alone.

    >>> near_labels(["A cube", "a  cube", "rain", ""]).tolist()
    [0, 0, 1, 2]
    """
    if not 0 < near <= 1:
        raise InvalidRequest(f"near={near}: expected more than 0 and at most 1, such as .9")
    plain = [normal(text) or f"\0{place}" for place, text in enumerate(texts)]
    same = content_labels(plain)
    _, first = np.unique(same, return_index=True)
    real = np.flatnonzero([not plain[p].startswith("\0") for p in first])
    different = [plain[first[p]] for p in real]
    pairs = real[_alike(different, near, shingles, seed, chains=True)]
    return _clusters(pairs, len(first))[same]


def _alike(
    texts: Sequence[str], near: float, shingles: Shingles, seed: int, *, chains: bool = False
) -> Int[np.ndarray, "pair 2"]:
    """Pairs of texts, all different, that are near duplicates; `chains` skips what is joined."""
    found = np.zeros((0, 2), np.int64)
    if len(texts) < 2:
        return found
    codes = _Codes(texts, shingles)
    signatures = _signatures(codes, seed)
    count, length = bands(near)
    # Hashes that agree too rarely for texts so alike: five standard deviations below.
    floor = near - 5 * np.sqrt(near * (1 - near) / HASHES)
    cluster = np.arange(len(texts))

    def verify(pairs: np.ndarray) -> np.ndarray:
        """Those of the pairs that are new and alike; they join their clusters."""
        nonlocal found, cluster
        if chains:
            pairs = pairs[cluster[pairs[:, 0]] != cluster[pairs[:, 1]]]
        pairs = pairs[_agreement(signatures, pairs) >= floor]
        pairs = pairs[codes.similarity(pairs[:, 0], pairs[:, 1]) >= near]
        if len(pairs):
            found = np.concatenate([found, pairs])
            found = found if chains else np.unique(found, axis=0)
            cluster = _clusters(found, len(texts)) if chains else cluster
        return pairs

    for band in range(count):
        key = _band_keys(signatures[band * length : (band + 1) * length])
        crowd, small = _buckets(key)
        for step in range(1, SMALL):
            same = key[small[step:]] == key[small[:-step]]
            if not same.any():
                break
            verify(np.stack([small[:-step][same], small[step:][same]], axis=1))
        if chains and len(crowd):  # one text a cluster is enough to join clusters
            places = np.unique(_mixed(key[crowd]) + cluster[crowd].astype(np.uint64),
                               return_index=True)[1]  # fmt: skip
            crowd = crowd[places]
        _follow(crowd, key, verify)
    return np.unique(np.sort(found, axis=1), axis=0)


def _clusters(pairs: np.ndarray, count: int) -> Int[np.ndarray, " text"]:
    shape = (count, count)
    graph = sparse.coo_array((np.ones(len(pairs), bool), (pairs[:, 0], pairs[:, 1])), shape)
    return csgraph.connected_components(graph, directed=False)[1].astype(np.int64)


def _agreement(signatures: np.ndarray, pairs: np.ndarray) -> Float[np.ndarray, " pair"]:
    """The share of hashes in which the texts of each pair agree."""
    found = [np.zeros(0)]
    for start in range(0, len(pairs), _PAIRS):
        one, other = pairs[start : start + _PAIRS].T
        found.append((signatures[:, one] == signatures[:, other]).mean(axis=0))
    return np.concatenate(found)


class _Codes:
    """Texts as sets of hashed shingles, made again when asked for, so that memory is bounded."""

    def __init__(self, texts: Sequence[str], shingles: Shingles):
        size = shingles.length
        if shingles.of == "words":
            known: dict[str, int] = {}
            parts = [[known.setdefault(w, len(known) + 1) for w in t.split(" ")] for t in texts]
            parts = [part + [0] * (size - len(part)) for part in parts]
            self.tokens = np.array([token for part in parts for token in part], np.uint64)
            lengths = [len(part) for part in parts]
        else:
            filled = [text.ljust(size, "\0") for text in texts]
            data = "".join(filled).encode("utf-32-le", "surrogatepass")
            self.tokens = np.frombuffer(data, np.uint32)
            lengths = [len(text) for text in filled]
        self.size = size
        self.ends = np.cumsum(np.array(lengths, np.int64))
        self.starts = self.ends - np.array(lengths, np.int64)

    def __len__(self) -> int:
        return len(self.starts)

    def of(self, texts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The hashed shingles of some texts, each once, and where each text's end."""
        counts = self.ends[texts] - self.starts[texts] - self.size + 1
        owner = np.repeat(np.arange(len(texts)), counts)
        inside = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
        at = self.starts[texts][owner] + inside
        hashed = np.zeros(len(at), np.uint64)
        for step in range(self.size):
            hashed = _mixed(hashed + self.tokens[at + step].astype(np.uint64) + np.uint64(step + 1))
        order = np.lexsort((hashed, owner))
        hashed, owner = hashed[order], owner[order]
        new = np.ones(len(hashed), bool)
        new[1:] = (hashed[1:] != hashed[:-1]) | (owner[1:] != owner[:-1])
        return hashed[new], np.cumsum(np.bincount(owner[new], minlength=len(texts)))

    def similarity(self, one: np.ndarray, other: np.ndarray) -> Float[np.ndarray, " pair"]:
        """The exact Jaccard overlap of pairs of texts."""
        found = [np.zeros(0)]
        for start in range(0, len(one), _PAIRS):
            pair = np.stack([one[start : start + _PAIRS], other[start : start + _PAIRS]])
            texts, place = np.unique(pair, return_inverse=True)
            place = place.reshape(pair.shape)
            hashed, ends = self.of(texts)
            _, column = np.unique(hashed, return_inverse=True)
            table = sparse.csr_array(
                (np.ones(len(column), np.int32), column, np.concatenate([[0], ends]))
            )
            sizes = np.diff(np.concatenate([[0], ends]))
            shared = np.asarray(table[place[0]].multiply(table[place[1]]).sum(axis=1)).reshape(-1)
            found.append(shared / (sizes[place[0]] + sizes[place[1]] - shared))
        return np.concatenate(found)


def _mixed(x: np.ndarray) -> np.ndarray:
    """A finaliser with good avalanche, on 64-bit words that wrap around."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def _signatures(codes: _Codes, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    factors = rng.integers(1, 2**63, HASHES, np.uint64) * np.uint64(2) + np.uint64(1)
    shifts = rng.integers(0, 2**63, HASHES, np.uint64)
    made = np.empty((HASHES, len(codes)), np.uint32)
    cost = np.cumsum(codes.ends - codes.starts)
    start = 0
    while start < len(codes):
        so_far = cost[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(cost, so_far + _BATCH, side="right")))
        hashed, ends = codes.of(np.arange(start, stop))
        begins = np.concatenate([[0], ends[:-1]])
        for k in range(HASHES):
            # The high half: the low bits of a product depend on few bits of its factors.
            values = (((hashed ^ shifts[k]) * factors[k]) >> np.uint64(32)).astype(np.uint32)
            made[k, start:stop] = np.minimum.reduceat(values, begins)
        start = stop
    return made


def _band_keys(part: np.ndarray) -> np.ndarray:
    key = np.zeros(part.shape[1], np.uint64)
    for line in part:
        key = _mixed(key + line.astype(np.uint64) + np.uint64(1))
    return key


def _buckets(key: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Texts that share a key with others, by key: those in large buckets, those in small ones."""
    order = np.argsort(key, kind="stable")
    ranked = key[order]
    starts = np.flatnonzero(np.concatenate([[True], ranked[1:] != ranked[:-1]]))
    sizes = np.diff(np.concatenate([starts, [len(key)]]))
    size = np.repeat(sizes, sizes)
    return order[size > SMALL], order[(size > 1) & (size <= SMALL)]


def _follow(crowd: np.ndarray, key: np.ndarray, verify: Callable[[np.ndarray], np.ndarray]) -> None:
    """Large buckets: each round compares all that is left with one leader."""
    for _ in range(LEADERS):
        if len(crowd) < 2:
            return
        _, first, bucket = np.unique(key[crowd], return_index=True, return_inverse=True)
        leader = crowd[first][bucket]
        others = crowd != leader
        alike = verify(np.stack([leader[others], crowd[others]], axis=1))
        crowd = crowd[others]
        crowd = crowd[~np.isin(crowd, alike)]
