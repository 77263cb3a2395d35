"""Worlds whose pods all fit, by how they were made; the packer does not know how."""

from collections.abc import Sequence

import msgspec
import numpy as np

from clusterstate.objects.values.meta import Manifest
from scheduling.packing.problem import Needs, Problem, weights_of
from tests.builders import make_node, make_pod

Amounts = tuple[int, ...]


def cut(rng: np.random.Generator, total: int, parts: int) -> list[int]:
    """Return a whole amount in so many parts of at least 1."""
    cuts = np.sort(rng.integers(0, total - parts + 1, parts - 1))
    return [int(one) + 1 for one in np.diff([0, *cuts, total - parts])]


def exact(
    nodes: int, pods: int, seed: int, *, mixed: bool = False, devices: bool = False
) -> tuple[list[Amounts], list[Amounts]]:
    """Return nodes and pods (cpu, MiB, devices): about ``pods`` of them fill each node exactly."""
    rng = np.random.default_rng(seed)
    capacities, found = [], []
    for _ in range(nodes):
        cpu = int(rng.choice([16_000, 32_000, 64_000])) if mixed else 32_000
        memory = (int(rng.choice([64, 128, 256])) if mixed else 128) * 1024
        parts = max(1, int(rng.poisson(pods)))
        gpus = int(rng.choice([0, 8])) if devices else 0
        given = rng.multinomial(gpus, [1 / parts] * parts).tolist()
        cpus = [100 * one for one in cut(rng, cpu // 100, parts)]
        memories = [64 * one for one in cut(rng, memory // 64, parts)]
        found += list(zip(cpus, memories, given, strict=True))
        capacities.append((cpu, memory, gpus))
    order = rng.permutation(len(found))
    return capacities, [found[at] for at in order.tolist()]


def classes(
    nodes: int, kinds: int, seed: int, *, mixed: bool = False
) -> tuple[list[Amounts], list[Amounts]]:
    """Return nodes that were filled with pods of a few classes until none fitted any more."""
    rng = np.random.default_rng(seed)
    sorts = [(int(rng.integers(2, 15)), int(rng.integers(8, 57)), 0) for _ in range(kinds)]
    capacities, found = [], []
    for _ in range(nodes):
        cpu = int(rng.choice([32, 64, 96])) if mixed else 64
        memory = int(rng.choice([128, 256, 384])) if mixed else 256
        capacities.append((cpu * 1000, memory * 1024, 0))
        while fits := [one for one in sorts if one[0] <= cpu and one[1] <= memory]:
            one = fits[int(rng.integers(len(fits)))]
            found.append((one[0] * 1000, one[1] * 1024, 0))
            cpu, memory = cpu - one[0], memory - one[1]
    order = rng.permutation(len(found))
    return capacities, [found[at] for at in order.tolist()]


def catalogue(seed: int, pods: int = 1000, kinds: int = 50, shapes: int = 20) -> Needs:
    """Return pods of a few kinds and shapes of nodes with prices, of one of four sorts in turn.

    Any prices; families whose prices grow with their size; odd amounts, as of what kubelets leave;
    shapes some of which have devices. Of every other four some kinds of pods are more frequent.
    """
    rng = np.random.default_rng(seed)
    sort = seed % 4
    sizes = ([4, 8, 16, 32], [2, 4, 8, 16, 32, 48, 64, 96], [2, 4, 8, 16, 32, 64], [8, 16, 32, 64])
    cpu, ratio = rng.choice(sizes[sort], shapes), rng.choice([2, 4, 8], shapes)
    devices = rng.choice([0, 0, 0, 1, 4, 8], shapes) * (sort == 3)
    prices = cpu * (1 + ratio / 8) * rng.uniform(*((0.9, 1.1) if sort == 1 else (0.7, 1.3)), shapes)
    prices = np.round(prices + devices * rng.uniform(20, 60, shapes), 3)
    free = np.stack([cpu * 1000, cpu * ratio * 1024, devices], axis=1)
    if sort == 2:
        free[:, :2] -= [100, 500]
    asked = np.stack([rng.integers(1, 40, kinds) * 100, rng.integers(1, 60, kinds) * 256], axis=1)
    if sort == 1:
        asked = (2 ** rng.uniform(0, 6, (kinds, 2))).astype(np.int64) * [125, 256]
    of_devices = rng.choice([0, 0, 0, 0, 0, 0, 1, 2, 4], kinds) * (sort == 3)
    requests = np.column_stack([asked, of_devices])
    shares = rng.dirichlet(np.full(kinds, 2.0)) if seed % 8 >= 4 else None
    chosen = requests[rng.choice(kinds, pods, p=shares)]
    return Needs(
        problem=problem(list(map(tuple, free.tolist())), list(map(tuple, chosen.tolist()))),
        prices=prices,
        most=np.full(shapes, 200),
    )


def running(
    seed: int, nodes: int = 24, kinds: int = 20, shapes: int = 10, fill: float = 0.6
) -> tuple[Needs, Problem]:
    """Return a catalogue, and nodes of its shapes with pods on them, followed by one of each shape.

    Nodes of any shapes were filled with pods until hardly one fitted; a part of these is still
    there.
    """
    needs = catalogue(seed, 50 * kinds, kinds, shapes)
    asked, rng = needs.problem, np.random.default_rng(1000 + seed)
    own = rng.integers(0, shapes, nodes)
    free, share = asked.free[own].copy(), asked.counts / asked.counts.sum()
    x = np.zeros((len(share), nodes + shapes), np.int64)
    refused = 0
    while refused < 300:
        c = rng.choice(len(share), p=share)
        fits = np.flatnonzero((free >= asked.requests[c]).all(1))
        if len(fits):
            n = rng.choice(fits)
            x[c, n] += 1
            free[n] -= asked.requests[c]
        refused += not len(fits)
    x = rng.binomial(x, fill)
    here = x.any(1)
    x = x[here]
    columns = [*own, *range(shapes)]
    counts = x.sum(1)
    found = msgspec.structs.replace(
        asked, requests=asked.requests[here], counts=counts, weights=asked.weights[here],
        free=asked.free[columns], limits=np.broadcast_to(counts[:, None], x.shape).copy(),
        stays=x, start=x, prices=np.rint(needs.prices[columns] * 100).astype(np.int64),
        move_costs=np.ones(len(counts), np.int64),
    )  # fmt: skip
    return needs, found


def problem(
    capacities: Sequence[Amounts],
    pods: Sequence[Amounts],
    *,
    prices: Sequence[int] = (),
    apart: Sequence[tuple[int, int]] = (),
    priorities: Sequence[int] = (),
) -> Problem:
    """Return a problem without anything but amounts."""
    requests, kind = np.unique(np.array(pods, np.int64), axis=0, return_inverse=True)
    counts = np.bincount(kind.ravel(), minlength=len(requests)).astype(np.int64)
    shape = (len(requests), len(capacities))
    return Problem(
        requests=requests,
        counts=counts,
        weights=weights_of(list(priorities) or [0] * len(counts), counts.tolist()),
        free=np.array(capacities, np.int64),
        limits=np.broadcast_to(counts[:, None], shape).copy(),
        apart=list(apart),
        stays=np.zeros(shape, np.int64),
        prices=np.array(list(prices) or [0] * len(capacities), np.int64),
        move_costs=np.zeros(len(counts), np.int64),
        start=np.zeros(shape, np.int64),
    )


def manifests(
    capacities: Sequence[Amounts], pods: Sequence[Amounts]
) -> tuple[list[Manifest], list[Manifest]]:
    """Return the same as Nodes and Pods."""
    nodes = [
        make_node(f"node-{number}")
        .offers(cpu=f"{cpu}m", memory=f"{memory}Mi", pods=110)
        .offers_also({"example.com/gpu": str(gpus)})
        .manifest
        for number, (cpu, memory, gpus) in enumerate(capacities)
    ]
    made = []
    for number, (cpu, memory, gpus) in enumerate(pods):
        pod = make_pod(f"pod-{number}").asks(cpu=f"{cpu}m", memory=f"{memory}Mi")
        if gpus:
            pod = pod.asks_also({"example.com/gpu": str(gpus)})
        made.append(pod.manifest)
    return nodes, made
