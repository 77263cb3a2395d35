"""The decision core as a library: clusters from files, from kubectl's output or from nothing.

::

    from stowage import Cluster, simulate

    cluster = Cluster().add_nodes(1000, cpu="64", memory="256Gi")
    result = simulate(cluster, [pod(cpu="2") for _ in range(20_000)])

Nothing is stored and no service is asked. Equal arguments give equal decisions. The core, its
profiles and the plugins that are installed are those of the service; it is loaded at the first
simulation, in about a second, and on a new machine its loops are compiled then, in half a minute.
"""

import io
import json
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from stowage import _product

Manifest = dict[str, Any]
_PLACED: Final = "scheduled"
_PODS_PER_NODE: Final = "110"
_KUBECTL_KINDS: Final = (
    "nodes,pods,namespaces,priorityclasses,runtimeclasses,services,replicasets,statefulsets,"
    "replicationcontrollers,poddisruptionbudgets,persistentvolumes,persistentvolumeclaims,"
    "storageclasses,csinodes"
)


class Invalid(ValueError):
    """A file, an object or a configuration cannot be used; the message names each wrong field."""


@contextmanager
def raising_invalid() -> Iterator[None]:
    """Raise ``Invalid`` for wrong objects and files."""
    errors = _product.module("clusterstate.objects.values.errors")
    reading = _product.module("scheduling.management.files")
    try:
        yield
    except errors.StatusError as error:
        listed = _product.module("scheduling.simulation").refused(error)["status"]["errors"]
        text = "; ".join(one["message"] for one in listed) or str(error)
        raise Invalid(text) from error
    except reading.FileError as error:
        raise Invalid(str(error)) from error


def documents(*files: str | Path) -> list[Any]:
    """Return the documents of YAML and JSON files and folders, those of lists one by one.

    Raises:
        Invalid: a file cannot be read.
    """
    reading = _product.module("scheduling.management.files")
    with raising_invalid():
        return [one for file in files for one in reading.single(reading.documents(str(file)))]


class Decision(msgspec.Struct, frozen=True, gc=False):
    """The outcome for one pod.

    ``status``: scheduled, unschedulable, gated, skipped (its node is given), invalid or error.
    ``total``: the score of its node; 0 where one node alone fits. ``feasible`` of ``evaluated``
    nodes fit, ``best`` of them equally well. ``preempted_by``: the pod that preempted it.
    """

    namespace: str
    name: str
    status: str
    node: str
    message: str
    total: int
    feasible: int
    evaluated: int
    best: int
    preempted_by: str

    @property
    def scheduled(self) -> bool:
        """Whether it has a node."""
        return self.status == _PLACED


class Cluster:
    """Nodes, pods and whatever else scheduling looks at, as manifests.

    A ``KubeSchedulerConfiguration`` among them is used where ``simulate`` is given none. Pods
    without a node wait: ``simulate`` places them before the pods that it is given.
    """

    def __init__(self, objects: Iterable[Manifest] = ()) -> None:
        """Begin with these manifests, and the items of lists among them."""
        self.objects: list[Manifest] = []
        """All objects except pods without a node, and configurations."""
        self.waiting: list[Manifest] = []
        self.configuration: Manifest | None = None
        self.left_out: dict[str, int] = {}
        """How many objects were left out, by kind, since scheduling does not look at them."""
        self.add(*objects)

    @classmethod
    def read(cls, *files: str | Path) -> Self:
        """Return the cluster of YAML and JSON files and folders; ``-`` is standard input.

        Workloads in them have the pods that they ask for and that the files do not hold.

        Raises:
            Invalid: a file cannot be read.
        """
        reading = _product.module("scheduling.management.files")
        workloads = _product.module("scheduling.management.workloads")
        left_out: dict[str, int] = {}
        kept = [reading.of_placement(one) for one in _known_objects(documents(*files), left_out)]
        cluster = cls(workloads.ExpandedDocuments(kept).documents)
        cluster.left_out = left_out
        return cluster

    @classmethod
    def from_kubectl(cls, *options: str) -> Self:
        """Return the cluster that ``kubectl get`` shows; ``options`` such as ``--context=mine``.

        Raises:
            Invalid: kubectl fails; the message is what it says.
        """
        command = ["kubectl", "get", _KUBECTL_KINDS, "-A", "-o", "json", *options]
        try:
            done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603
        except OSError as error:
            raise Invalid(f"kubectl: {error.strerror}") from error
        if done.returncode:
            raise Invalid(f"kubectl: {done.stderr.decode(errors='replace').strip()}")
        return cls([json.loads(done.stdout)])

    def add(self, *objects: Manifest) -> Self:
        """Add manifests; a pod without ``spec.nodeName`` waits."""
        for one in _known_objects(objects, self.left_out) if objects else ():
            kind = one.get("kind")
            if kind == "KubeSchedulerConfiguration":
                self.configuration = one
            elif kind == "Pod" and not (one.get("spec") or {}).get("nodeName"):
                self.waiting.append(one)
            else:
                self.objects.append(one)
        return self

    def add_nodes(
        self,
        count: int,
        *,
        cpu: str = "4",
        memory: str = "16Gi",
        pods: str = _PODS_PER_NODE,
        name: str = "node-{}",
        labels: Mapping[str, str] | None = None,
        zones: Sequence[str] = (),
        taints: Sequence[Manifest] = (),
        **resources: str,
    ) -> Self:
        """Add equal nodes.

        Args:
            count: how many.
            cpu: the amount that each offers, a quantity as in Kubernetes; so ``memory``, ``pods``.
            memory: see ``cpu``.
            pods: see ``cpu``.
            name: with ``{}`` for the number, from 0.
            labels: of all of them.
            zones: their ``topology.kubernetes.io/zone``, in turn.
            taints: of all of them.
            resources: further ones, ``__`` for a dot and ``___`` for a slash:
                ``nvidia__com___gpu="8"``.
        """
        more = {
            key.replace("___", "/").replace("__", "."): value for key, value in resources.items()
        }
        offers = {"cpu": cpu, "memory": memory, "pods": pods, **more}
        for number in range(count):
            called = name.format(number)
            marks = {"kubernetes.io/hostname": called, **(labels or {})}
            if zones:
                marks["topology.kubernetes.io/zone"] = zones[number % len(zones)]
            self.objects.append(
                {
                    "apiVersion": "v1",
                    "kind": "Node",
                    "metadata": {"name": called, "labels": marks},
                    "spec": {"taints": list(taints)} if taints else {},
                    "status": {"capacity": offers, "allocatable": offers},
                }
            )
        return self


def _known_objects(documents: Iterable[Any], left_out: dict[str, int]) -> Iterator[Manifest]:
    """Yield objects that scheduling knows, those of lists one by one; count the others."""
    from collections import Counter

    reading = _product.module("scheduling.management.files")
    others: Counter[str] = Counter()
    yield from reading.of_known_kinds(reading.single(documents), others)
    for kind, count in others.items():
        left_out[kind] = left_out.get(kind, 0) + count


def pod(
    name: str = "", *, namespace: str = "default", cpu: str = "", memory: str = "", **spec: Any
) -> Manifest:
    """Return the manifest of a pod with one container; ``spec``: further fields of its spec."""
    requests = {key: value for key, value in (("cpu", cpu), ("memory", memory)) if value}
    meta = {"namespace": namespace, **({"name": name} if name else {"generateName": "pod-"})}
    container = {"name": "main", "image": "main", "resources": {"requests": requests}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": meta,
        "spec": {"containers": [container], **spec},
    }


class Result:
    """The outcomes for the pods of a simulation, in their order.

    It is a table, too: pandas, Polars, DuckDB and pyarrow take it by the Arrow PyCapsule interface
    (``polars.DataFrame(result)``), which needs nanoarrow (``stowage[export]``).
    """

    def __init__(self, answer: Manifest, cluster: Cluster, pods: Sequence[Manifest]) -> None:
        self.answer = answer
        """The answer of the core, whose ``status`` docs/simulations.md describes."""
        self._cluster = cluster
        self._pods = pods
        self.decisions = [_decision(one) for one in answer["status"]["results"]]
        self.warnings: list[str] = answer["status"].get("warnings") or []

    def __len__(self) -> int:
        return len(self.decisions)

    def __iter__(self) -> Iterator[Decision]:
        return iter(self.decisions)

    @property
    def placed(self) -> list[Decision]:
        """The decisions of pods that have a node."""
        return [one for one in self.decisions if one.scheduled and not one.preempted_by]

    @property
    def unplaced(self) -> list[Decision]:
        """The decisions of pods that have none."""
        return [one for one in self.decisions if not one.scheduled and one.status != "skipped"]

    @property
    def cluster(self) -> Cluster:
        """A cluster with the pods where they were placed, to go on from."""
        gone = {one["pod"] for one in self.answer["status"].get("evictions") or ()}
        found = Cluster()
        found.configuration = self._cluster.configuration
        found.objects = [one for one in self._cluster.objects if _title(one) not in gone]
        for one, decision in zip(self._pods, self.decisions, strict=True):
            if decision.preempted_by:
                continue
            meta = {**one["metadata"], "name": decision.name, "namespace": decision.namespace}
            if decision.scheduled:
                spec = {**one["spec"], "nodeName": decision.node}
                found.objects.append({**one, "kind": "Pod", "metadata": meta, "spec": spec})
            elif decision.status != "invalid":
                found.waiting.append({**one, "kind": "Pod", "metadata": meta})
        return found

    def columns(self) -> dict[str, list[Any]]:
        """Return the decisions as columns: a list for each field of ``Decision``."""
        names = Decision.__struct_fields__
        return {name: [getattr(one, name) for one in self.decisions] for name in names}

    def to_pandas(self) -> Any:
        """Return a pandas DataFrame, a row for each pod."""
        import pandas

        return pandas.DataFrame(self.columns())

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any:
        """Return the decisions as an Arrow stream (PyCapsule interface)."""
        arrow = _product.module("clusterstate.database.arrow")
        writer = arrow.Writer(arrow.columns_of(Decision))
        rows = [msgspec.structs.astuple(one) for one in self.decisions]
        text = writer.batch(rows) + writer.end()
        import nanoarrow.ipc

        stream = nanoarrow.ArrayStream.from_readable(io.BytesIO(text))
        return stream.__arrow_c_stream__(requested_schema)


def _title(manifest: Manifest) -> str:
    meta = manifest.get("metadata") or {}
    if manifest.get("kind") != "Pod":
        return ""
    return f"{meta.get('namespace') or 'default'}/{meta.get('name')}"


def _decision(result: Manifest) -> Decision:
    namespace, _, name = result["pod"].partition("/")
    nodes = result.get("nodes") or {}
    feasible = result.get("feasible") or ()
    best = result.get("best") or ()
    infeasible = result.get("infeasible") or ()
    return Decision(
        namespace=namespace,
        name=name,
        status=result["status"],
        node=result["nodeName"],
        message=result["message"],
        total=int(result.get("total") or 0),
        feasible=nodes.get("feasible", len(feasible)),
        evaluated=nodes.get("evaluated", len(feasible) + len(infeasible)),
        best=nodes.get("best", len(best)),
        preempted_by=result.get("preemptedBy") or "",
    )


def simulate(
    cluster: Cluster,
    pods: Iterable[Manifest] = (),
    *,
    configuration: Manifest | str | Path | None = None,
    seed: int = 0,
    tie_break: str = "random",
    preemption: str = "perform",
    admission: bool = True,
    explain: str = "none",
) -> Result:
    """Place pods one after the other, and return the outcomes. The cluster stays as it is.

    Args:
        cluster: the nodes and all else; its own waiting pods are placed first.
        pods: the pods to place, in order.
        configuration: a ``KubeSchedulerConfiguration``, its file, or a short name (default,
            least, most, packing); else the cluster's own, else the default one.
        seed: for the choice among equally good nodes.
        tie_break: ``random``, or ``first`` by name.
        preemption: ``perform``: victims leave; ``describe``: they are only named.
        admission: whether pods are checked and get what classes and defaults give them.
        explain: ``summary`` or ``full`` to have each node in ``Result.answer``, which takes longer.

    Raises:
        Invalid: with every wrong field.
    """
    core = _product.module("scheduling.simulation")
    chosen = cluster.configuration if configuration is None else configuration_of(configuration)
    document = _question(
        "Simulation", cluster, pods, chosen, seed=seed, tieBreak=tie_break, preemption=preemption,
        admission=admission, explain=explain,
    )  # fmt: skip
    with raising_invalid():
        answer = core.run(core.read(document, default_base="empty"), core.Base())
    return Result(answer, cluster, document["spec"]["pods"])


def pack(
    cluster: Cluster,
    pods: Iterable[Manifest] = (),
    *,
    move: bool = False,
    seconds: float = 1.5,
    seed: int = 0,
) -> Manifest:
    """Return a placement of pods that are packed together, and bounds for any placement.

    The answer has ``placed``, ``of``, ``schedulerAlone``, ``bound``, ``pods``, ``left``, ``moves``
    and ``emptied``. It needs the extra ``solver``.

    Args:
        cluster: as of ``simulate``.
        pods: those to place, beside the cluster's own that wait.
        move: whether pods that run and have an owner may move, so that nodes are emptied.
        seconds: for which the solver may search.
        seed: of the search.

    Raises:
        Invalid: with every wrong field, or the solver is not installed.
    """
    packing = _product.module("scheduling.simulation.packing")
    base = _product.module("scheduling.simulation").Base()
    document = _question(
        packing.KIND, cluster, pods, cluster.configuration, seed=seed, seconds=seconds,
        move=packing.TO_EMPTY if move else packing.NEVER,
    )  # fmt: skip
    with raising_invalid():
        found: Manifest = packing.run_packing(packing.read_packing(document), base)["status"]
    return found


def _question(
    kind: str, cluster: Cluster, pods: Iterable[Manifest], configuration: Any, **spec: Any
) -> Manifest:
    given = [
        *cluster.waiting,
        *(one if "kind" in one else {"apiVersion": "v1", "kind": "Pod", **one} for one in pods),
    ]
    spec |= {"base": "empty", "objects": cluster.objects, "pods": given}
    if configuration is not None:
        spec["configuration"] = configuration
    return {"apiVersion": "stowage.dev/v1", "kind": kind, "spec": spec}


def configuration_of(given: Manifest | str | Path) -> Manifest:
    """Return the document of a configuration: of a file, or of a short name.

    Raises:
        Invalid: a file does not hold one, or there is neither a file nor a short name.
    """
    if isinstance(given, Mapping):
        return dict(given)
    policies = _product.module("scheduling.scenarios.policies")
    script = _product.module("scheduling.scenarios.script").Script(title="", objects=(), steps=())
    if given in policies.NAMES:
        try:
            named: Manifest = policies.document(str(given), script)
        except policies.NoTypicalPods as error:
            raise Invalid(
                f"{given}: {error}: it may only be used with traces (stowage.compare)"
            ) from error
        return named
    try:
        found = documents(given)
    except Invalid as error:
        raise Invalid(f"{error}; short names are {', '.join(policies.NAMES)}") from error
    if len(found) != 1 or not isinstance(found[0], dict):
        raise Invalid(f"{given}: must hold one KubeSchedulerConfiguration")
    document: Manifest = found[0]
    return document


class Comparison:
    """The outcomes of a trace under several policies: figures side by side, curves, a page."""

    def __init__(self, script: Any, outcomes: Sequence[Any]) -> None:
        self.script, self.outcomes = script, outcomes
        self.found = _product.module("scheduling.scenarios.comparing").compare(outcomes)

    @property
    def figures(self) -> dict[str, dict[str, float]]:
        """Each figure's value by policy, such as ``figures["bound"]["packing"]``."""
        return {
            one.name: dict(zip(self.found.titles, one.values, strict=True))
            for one in self.found.figures
        }

    def to_pandas(self) -> Any:
        """Return the figures as a pandas DataFrame: a row for each, a column for each policy."""
        import pandas

        return pandas.DataFrame(self.figures).T

    def __str__(self) -> str:
        """Return the figures as a table."""
        text: str = _product.module("scheduling.scenarios.tables").comparison_table(self.found)
        return text

    def pictures(self) -> dict[str, str]:
        """Return curves over time as SVG, by title."""
        page = _product.module("scheduling.scenarios.page")
        return dict(page.pictures(self.outcomes))

    def html(self) -> str:
        """Return the comparison as one page, which loads nothing."""
        page = _product.module("scheduling.scenarios.page")
        about = (f"{self.script.pod_count} pods, seed {self.script.seed}.",)
        text: str = page.page(f"Stowage: {self.script.title}", about, self.outcomes, self.found)
        return text

    def _repr_html_(self) -> str:
        """Return the figures and the curves as HTML, for notebooks."""
        curves = "".join(f"<h4>{title}</h4>{svg}" for title, svg in self.pictures().items())
        return f"<pre>{self}</pre>{curves}"


def compare(trace: Any, policies: Sequence[str | Path | Manifest] = ("default",)) -> Comparison:
    """Play a trace in virtual time under each policy, and return how the outcomes differ.

    Args:
        trace: of ``stowage.read_trace``.
        policies: short names (default, least, most, packing, fragmentation), files or documents.

    Raises:
        Invalid: an object of the trace or a policy is wrong.
    """
    known = _product.module("scheduling.scenarios.policies")
    playing = _product.module("scheduling.scenarios.playing")
    errors = _product.module("clusterstate.objects.values.errors")
    runtime = _product.module("scheduling.framework.runtime")
    catalogue = _product.module("scheduling.plugins.catalogue")
    _product.module("scheduling.engine.deciding").warm()
    outcomes = []
    for number, policy in enumerate(policies):
        try:
            if policy in known.NAMES:
                loaded = known.load(policy, trace)
            else:
                loaded = catalogue.load_configuration(configuration_of(policy))
            title = str(policy) if isinstance(policy, str | Path) else f"policy {number + 1}"
            outcomes.append(playing.play(trace, loaded, title=title))
        except (errors.StatusError, runtime.ConfigurationError, known.NoTypicalPods) as error:
            raise Invalid(f"{policy}: {error}") from error
    return Comparison(trace, outcomes)


def read_trace(form: str, *files: str | Path, **options: Any) -> Any:
    """Return a trace in a format of researchers, to ``compare`` policies by (docs/traces.md).

    Args:
        form: openb, gpu-2020, cluster-2018, borg-2019, azure, swf or csv.
        files: those of the format.
        options: of the format, such as ``stretch``, ``share_of_nodes``, ``seed``.

    Raises:
        Invalid: a file cannot be read or is of another format.
    """
    traces = _product.module("scheduling.scenarios.traces")
    try:
        return traces.read(form, [Path(one) for one in files], **options)
    except traces.TraceError as error:
        raise Invalid(str(error)) from error
