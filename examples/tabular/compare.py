"""What other tools say about the parcels: the numbers of docs/how-to/compared.md.

    pip install allpairspy cleanlab fairlearn sliceline
    python compare.py FOLDER

FOLDER is what make_data.py wrote. It needs no recombine, so that it can run in a venv of its own.
"""

from __future__ import annotations

import itertools
import os
import sys
import time
import warnings
from pathlib import Path

import adapter
import numpy as np
import pandas as pd
from allpairspy import AllPairs
from cleanlab.filter import find_label_issues
from fairlearn.metrics import MetricFrame
from make_data import VALUES
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import accuracy_score
from sklearn.model_selection import cross_val_predict
from sklearn.preprocessing import OneHotEncoder
from sliceline.slicefinder import Slicefinder

FACTORS = list(VALUES)
warnings.simplefilter("ignore")


def covered(values, rows, t):
    """How many interactions of t factors the rows hold, and how many there are."""
    have = want = 0
    for places in itertools.combinations(range(len(values)), t):
        every = set(itertools.product(*(values[p] for p in places)))
        have += len(every & {tuple(row[p] for p in places) for row in rows})
        want += len(every)
    return f"{have} of {want}"


def generation(history):
    for what, values, n in (
        ("5 x 4 x 3 x 4", list(VALUES.values()), 2),
        ("4^10", [[f"{i}{v}" for v in "abcd"] for i in range(10)], 2),
        ("5 x 4 x 3 x 4", list(VALUES.values()), 3),
    ):
        begun = time.perf_counter()
        rows = [list(row) for row in AllPairs(values, n=n)]
        took = time.perf_counter() - begun
        print(
            f"allpairspy, {what}, n={n}: {len(rows)} rows, {covered(values, rows, n)}, {took:.3f} s"
        )
    begun = time.perf_counter()
    more = list(AllPairs(list(VALUES.values()), previously_tested=history[FACTORS].values.tolist()))
    print(f"allpairspy after history: {len(more)} rows, {time.perf_counter() - begun:.3f} s")


def labels(history, folder):
    rng = np.random.default_rng(5)
    names, codes = np.unique(history["way"], return_inverse=True)
    bad = rng.choice(len(history), 80, replace=False)
    noisy = codes.copy()
    noisy[bad] = (codes[bad] + rng.integers(1, len(names), len(bad))) % len(names)
    inputs = OneHotEncoder().fit_transform(history[FACTORS])
    forest = RandomForestClassifier(100, min_samples_leaf=3, random_state=0)
    told = cross_val_predict(forest, inputs, noisy, cv=5, method="predict_proba")
    found = np.flatnonzero(find_label_issues(noisy, told))
    print(f"cleanlab: {len(found)} rows, {len(np.intersect1d(found, bad))} of the 80")
    history.assign(way=names[noisy]).to_csv(Path(folder) / "noisy.csv", index=False)


def groups(orders, said):
    def frame(columns):
        return MetricFrame(
            metrics=accuracy_score, y_true=orders["way"], y_pred=said,
            sensitive_features=orders[columns],
        ).by_group  # fmt: skip

    print("fairlearn:", frame(["goods", "region"]).sort_values().head(3).round(2).to_dict())
    print("fairlearn:", frame("goods").round(2).to_dict(), frame("region").round(2).to_dict())
    every = frame(FACTORS)
    print(f"fairlearn: {len(every)} groups, {(every < 1).sum()} below 1")


def slices(orders, said):
    coded = orders[FACTORS].astype("category").apply(lambda column: column.cat.codes + 1)

    def found(errors):
        return Slicefinder(alpha=0.95, k=5, max_l=3, min_sup=10).fit(coded.to_numpy(int), errors)

    begun = time.perf_counter()
    print(found((orders["way"] != said).to_numpy(float)).top_slices_)
    print(f"sliceline: {time.perf_counter() - begun:.2f} s")
    rng = np.random.default_rng(0)
    random = [found((rng.random(len(orders)) < 0.05).astype(float)) for _ in range(10)]
    print(f"sliceline: {sum(len(one.top_slices_) > 0 for one in random)} of 10 random draws")


def main(folder: str = ".") -> None:
    os.environ["PARCELS"] = folder
    history, orders = (pd.read_csv(Path(folder) / f"{n}.csv") for n in ("history", "orders"))
    said = adapter.model().answer(orders.to_dict("records"))
    generation(history)
    labels(history, folder)
    groups(orders, said)
    slices(orders, np.array(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
