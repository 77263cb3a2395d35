"""The structured allocator: devices for claims on one node, the first solution of a full search.

The reference form, to be read beside k8s.io/dynamic-resource-allocation
``structured/internal/incubating/allocator_incubating.go`` (v1.36) and, for attributes that are
lists, ``experimental/constraint.go``. Claims, their requests and devices are tried in order; each
candidate is taken, the search continues with the rest, and on failure returns it. Within one
request devices are in the order of the pools, so that no set is tried twice.

No solution is ``None``; an error ends the pod's attempt. Counters that upstream does not return, of
a device that a taint or constraint then refuses, are returned here.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec

from clusterstate.objects.cel.devices import CompileError, EvaluationError
from clusterstate.objects.dra import capacity
from clusterstate.objects.dra.allocated import AllocatedState
from clusterstate.objects.dra.capacity import Consumed
from clusterstate.objects.dra.pools import Pool, PoolId, gather_pools
from clusterstate.objects.dra.resourceclaim import asked_devices, full_name, requests_of, tolerates
from clusterstate.objects.dra.slices import Content, DeviceId, DeviceView, NodeView, SliceView
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.quantity import Quantity

_MOST_KEPT: Final = 65_536
MOST_RESULTS: Final = 32
"""Devices that one claim can have (resource/v1 ``AllocationResultsMaxSize``)."""


class Features(msgspec.Struct, frozen=True):
    """Feature gates that the allocator knows, with the defaults of 1.36."""

    admin_access: bool = True
    prioritized_list: bool = True
    partitionable_devices: bool = True
    device_taints: bool = True
    binding_conditions: bool = True
    consumable_capacity: bool = True
    list_attributes: bool = False
    unready_on_node: bool = False
    """v1.38: who asks for all devices tries other nodes where one has an unready pool."""


class AllocationError(ValueError):
    """The pod's attempt ends; the text is Kubernetes'."""


class FailedOnNode(AllocationError):
    """Nothing fits on this node, whose pools are invalid or changing; other nodes may fit."""


class _TooMany(Exception):
    """The claim requests more devices than it may have; backtracking cannot help."""


Candidate = tuple[DeviceView, SliceView, Pool]


class Candidates:
    """Devices in the order of their pools that no selector of a request rules out.

    They are computed only as far as they are read. A device for which a selector fails with an
    error is included: the error counts only if the allocator gets as far as this device.
    """

    __slots__ = ("_found", "_rest")

    def __init__(self, pools: Sequence[Pool], expressions: Sequence[str], *, lists: bool) -> None:
        self._found: list[Candidate] = []
        self._rest = (
            (device, one, pool)
            for pool in pools
            if not (pool.incomplete or pool.invalid)
            for one in pool.slices
            for device in one.devices
            if all(_may_match(device, expression, lists=lists) for expression in expressions)
        )

    def at(self, index: int) -> Candidate | None:
        """Return the candidate at an index, ``None`` after the last."""
        found = self._found
        while index >= len(found):
            more = next(self._rest, None)
            if more is None:
                return None
            found.append(more)
        return found[index]


def _may_match(device: DeviceView, expression: str, *, lists: bool) -> bool:
    try:
        return device.matches(expression, lists=lists)
    except (CompileError, EvaluationError):
        return True


class _Request:
    """A request or subrequest of a claim, and the candidate devices for it."""

    __slots__ = (
        "admin",
        "all",
        "candidates",
        "choice",
        "count",
        "everything",
        "name",
        "parent",
        "spec",
    )

    def __init__(self, name: str, spec: Manifest, parent: str) -> None:
        self.name = name
        self.parent = parent
        self.spec = spec
        self.admin = bool(spec.get("adminAccess"))
        self.all = spec.get("allocationMode") == "All"
        self.count = 0
        self.everything: list[Candidate] = []
        self.candidates: Candidates | None = None
        self.choice = 0  # kept with the first subrequest: which one was picked

    @property
    def full_name(self) -> str:
        return f"{self.parent}/{self.name}" if self.parent else self.name

    @property
    def names(self) -> tuple[str, ...]:
        """The names by which constraints refer to the request."""
        return (self.parent, self.full_name) if self.parent else (self.name,)

    def capacities_of(self, device: DeviceView) -> Mapping[str, Any]:
        amounts = (self.spec.get("capacity") or {}).get("requests") or {}
        return capacity.unqualified(amounts, device.id[0])


class _Result(msgspec.Struct):
    request: _Request
    device: DeviceView
    slice: SliceView
    consumed: Consumed | None


class _Constraint:
    """A constraint: the devices of some requests must agree, or differ, in an attribute."""

    def __init__(self, manifest: Manifest, *, distinct: bool, lists: bool) -> None:
        self.requests = manifest.get("requests") or ()
        self.attribute: str = manifest["distinctAttribute" if distinct else "matchAttribute"]
        self.distinct = distinct
        self.lists = lists
        self.values: list[frozenset[tuple[str, Any]]] = []
        self.by_request: dict[str, frozenset[tuple[str, Any]]] = {}

    def concerns(self, request: _Request) -> bool:
        return not self.requests or any(name in self.requests for name in request.names)

    def add(self, request: _Request, device: DeviceView) -> bool:
        """Count a device in if the constraint allows it."""
        if not self.concerns(request):
            return True
        values = attribute_set(device, self.attribute, lists=self.lists)
        if not values:
            return False
        if self.distinct and not self.lists:
            # As upstream: only the last device of each request is remembered.
            if any(values & others for others in self.by_request.values()):
                return False
            self.by_request[request.names[0]] = values
        elif self.distinct:
            if any(values & others for others in self.values):
                return False
        elif self.values:
            values &= self.values[-1]
            if not values:
                return False
        self.values.append(values)
        return True

    def remove(self, request: _Request) -> None:
        if self.concerns(request):
            self.values.pop()
            self.by_request.pop(request.names[0], None)


def attribute_set(device: DeviceView, name: str, *, lists: bool) -> frozenset[tuple[str, Any]]:
    """Return the values of a fully qualified attribute with their kinds; empty if it has none."""
    attributes = device.manifest.get("attributes") or {}
    domain, _, identifier = name.partition("/")
    attribute = attributes.get(name)
    if attribute is None and domain == device.id[0]:
        attribute = attributes.get(identifier)
    for kind in ("string", "int", "bool", "version"):
        if attribute and (value := attribute.get(kind)) is not None:
            return frozenset({(kind, value)})
        if lists and attribute and (values := attribute.get(f"{kind}s")) is not None:
            return frozenset((kind, value) for value in values)
    return frozenset()


class Allocator:
    """Finds devices for claims; can be asked for many nodes. ``classes`` are by name."""

    def __init__(
        self,
        slices: Sequence[SliceView],
        classes: Mapping[str, Manifest],
        state: AllocatedState,
        features: Features | None = None,
        share_id: Callable[[], str] = lambda: "",
    ) -> None:
        self.slices = slices
        self.classes = classes
        self.state = state
        self.features = features or Features()
        self.share_id = share_id
        # Counters matter wherever their pool does.
        self._anywhere = [s for s in slices if s.place.node_name is None or s.counter_sets]
        self._on_node: dict[str, list[SliceView]] = {}
        self.by_labels = any(s.place.node_name is None and not s.is_everywhere for s in slices)
        self._pools: dict[str, list[Pool]] = {}
        self._candidates: dict[tuple[str, tuple[str, ...]], Candidates] = {}
        self.counted: dict[tuple[str, bytes], tuple[DeviceId, ...] | None] = {}
        """By node and kind; see ``dra.counting``."""
        self.places: dict[tuple[tuple[Content, ...], bytes], list[int] | None] = {}
        """By the content of a slice's devices and kind: which of them are of the kind."""
        self.on_several: set[PoolId] = set()
        """Pools with slices for several nodes, on which devices of one name are one device."""
        node_of: dict[PoolId, str | None] = {}
        for one in slices:
            if one.counter_sets:
                continue
            node, pool = one.place.node_name, (one.driver, one.pool)
            if node is not None:
                self._on_node.setdefault(node, []).append(one)
            if node_of.setdefault(pool, node) != node:
                self.on_several.add(pool)

    def allocate(
        self,
        node: NodeView,
        claims: Sequence[Manifest],
        check: Callable[[], None] = lambda: None,
    ) -> list[Manifest] | None:
        """Return an AllocationResult for each claim, ``None`` if there is no solution.

        ``check`` is called at each step of the search and may raise to end it.

        Raises:
            AllocationError: a claim cannot be handled; ``FailedOnNode`` is about this node only.
        """
        pools = self.pools_of(node)
        search = _Search(self, node, claims, pools, check)
        try:
            done = search.run()
        except RecursionError:
            raise AllocationError("too many devices are claimed for one search") from None
        if done:
            return [search.allocation(index) for index in range(len(claims))]
        if any(pool.invalid for pool in pools):
            raise FailedOnNode("invalid resource pools were encountered")
        return None

    def pools_of(self, node: NodeView) -> list[Pool]:
        """Return the pools of a node, remembered where its labels do not matter.

        All nodes without slices of their own share those that every node sees.
        """
        key = self.pools_key(node)
        pools = None if self.by_labels else self._pools.get(key)
        if pools is None:
            usable = [*self._on_node.get(node.name, ()), *self._anywhere]
            partitionable = self.features.partitionable_devices
            pools = gather_pools(usable, self.slices, node, partitionable=partitionable)
            if not self.by_labels:
                self._pools[key] = pools
        return pools

    def pools_key(self, node: NodeView) -> str:
        """Return a key that is equal for nodes with the same pools, if labels do not matter."""
        return node.name if node.name in self._on_node else ""

    def candidates(self, node: NodeView, pools: Sequence[Pool], request: _Request) -> Candidates:
        """Return the devices that a request may get on a node, remembered with the pools."""
        expressions = self.expressions_of(request.spec) or ()
        key = (self.pools_key(node), expressions)
        found = None if self.by_labels else self._candidates.get(key)
        if found is None:
            found = Candidates(pools, expressions, lists=self.features.list_attributes)
            if not self.by_labels:
                if len(self._candidates) >= _MOST_KEPT:
                    self._candidates.clear()
                self._candidates[key] = found
        return found

    def expressions_of(self, request: Manifest) -> tuple[str, ...] | None:
        """Return the CEL expressions for a request's devices, ``None`` without its class."""
        of_class = self.classes.get(request.get("deviceClassName") or "")
        if of_class is None:
            return None
        selectors = (
            *((of_class.get("spec") or {}).get("selectors") or ()),
            *(request.get("selectors") or ()),
        )
        return tuple(one["cel"]["expression"] for one in selectors if one.get("cel"))


class _Search:
    """The state of one search: the devices taken so far."""

    def __init__(
        self,
        allocator: Allocator,
        node: NodeView,
        claims: Sequence[Manifest],
        pools: list[Pool],
        check: Callable[[], None],
    ) -> None:
        self.allocator, self.features = allocator, allocator.features
        self.state, self.node, self.claims, self.pools = allocator.state, node, claims, pools
        self.check = check
        self.requests: list[list[list[_Request]]] = []  # claim, request, subrequests or one
        self.constraints: list[list[_Constraint]] = []
        self.results: list[list[_Result]] = [[] for _ in claims]
        self.taking: dict[DeviceId, set[int]] = {}  # device -> claims, by their index
        self.sharing: dict[DeviceId, tuple[int, Consumed]] = {}
        self.available: dict[PoolId, dict[str, dict[str, Quantity]]] = {}
        self.suits: dict[tuple[DeviceId, int], bool] = {}

    def run(self) -> bool:
        for claim in self.claims:
            self._prepare(claim)
        try:
            return self._one(0, 0, 0)
        except _TooMany:
            return False

    # --- Before the search ---

    def _prepare(self, claim: Manifest) -> None:
        """Read the requests of a claim (``Allocate``, ``validateDeviceRequest``)."""
        least, found = 0, []
        for request in requests_of(claim):
            options = self._options(claim, request)
            for option in options:
                self._validate(claim, option)
            found.append(options)
            least += min(option.count for option in options)
        if least > MOST_RESULTS:
            raise AllocationError(
                f"claim {full_name(claim)}: number of requested devices {least} exceeds the claim "
                f"limit of {MOST_RESULTS}"
            )
        self.requests.append(found)
        constraints = []
        for index, one in enumerate(asked_devices(claim).get("constraints") or ()):
            distinct = one.get("distinctAttribute") is not None
            if one.get("matchAttribute") is not None:
                distinct = False
            elif not distinct or not self.features.consumable_capacity:
                raise AllocationError(
                    f"claim {full_name(claim)}, constraint #{index}: empty constraint "
                    "(unsupported constraint type?)"
                )
            lists = self.features.list_attributes
            constraints.append(_Constraint(one, distinct=distinct, lists=lists))
        self.constraints.append(constraints)

    def _options(self, claim: Manifest, request: Manifest) -> list[_Request]:
        name, subrequests = request["name"], request.get("firstAvailable") or ()
        where = f"claim {full_name(claim)}, request {name}"
        if subrequests and not self.features.prioritized_list:
            raise AllocationError(
                f"{where}: has subrequests, but the DRAPrioritizedList feature is disabled"
            )
        exactly = request.get("exactly") or {}
        if not self.features.consumable_capacity:
            off = "has capacity requests, but the DRAConsumableCapacity feature is disabled"
            if exactly.get("capacity") is not None:
                raise AllocationError(f"{where}: {off}")
            for sub in subrequests:
                if sub.get("capacity") is not None:
                    raise AllocationError(
                        f"claim {full_name(claim)}, subrequest {sub['name']}: {off}"
                    )
        if subrequests:
            return [_Request(sub["name"], sub, name) for sub in subrequests]
        return [_Request(name, exactly, "")]

    def _validate(self, claim: Manifest, request: _Request) -> None:
        spec, where = request.spec, f"claim {full_name(claim)}, request {request.name}"
        for index, selector in enumerate(spec.get("selectors") or ()):
            if selector.get("cel") is None:
                raise AllocationError(
                    f"{where}, selector #{index}: CEL expression empty (unsupported selector type?)"
                )
        if not self.features.admin_access and spec.get("adminAccess") is not None:
            raise AllocationError(
                f"{where}: admin access is requested, but the feature is disabled"
            )
        if not (name := spec.get("deviceClassName")):
            raise AllocationError(f"{where}: missing device class name (unsupported request type?)")
        if name not in self.allocator.classes:
            raise AllocationError(
                f"{where}: could not retrieve device class {name}: "
                f'deviceclass.resource.k8s.io "{name}" not found'
            )
        match spec.get("allocationMode"):
            case "ExactCount":
                request.count = spec.get("count") or 0
            case "All":
                self._find_all(claim, request, where)
            case other:
                raise AllocationError(f"{where}: unsupported count mode {other or ''}")

    def _find_all(self, claim: Manifest, request: _Request, where: str) -> None:
        for pool in self.pools:
            if pool.incomplete or pool.invalid:
                state = "being updated" if pool.incomplete else "invalid"
                kind = FailedOnNode if self.features.unready_on_node else AllocationError
                raise kind(
                    f"{where}: asks for all devices, but resource pool {pool} is currently {state}"
                )
            for one in pool.slices:
                request.everything += [
                    (device, one, pool) for device in one.devices
                    if self._is_suitable(claim, request, device, one)
                    and self._has_capacity(request, device)
                ]  # fmt: skip
        request.count = len(request.everything)

    # --- The search ---

    def _one(self, claim: int, request: int, option: int, count: int = 0, start: int = 0) -> bool:
        """Find the next device and all later ones (``allocateOne``).

        ``count``: devices that this request has already; at 0 its subrequests are tried in order,
        unless ``start`` is negative: then only ``option`` is tried.
        """
        self.check()
        if claim >= len(self.claims):
            return True
        if request >= len(self.requests[claim]):
            try:
                return self._one(claim + 1, 0, 0)
            except _TooMany:
                return False
        options = self.requests[claim][request]
        if options[0].parent and not count and start >= 0:
            return self._first_available(claim, request)
        chosen = options[option]
        if chosen.all and not chosen.everything:
            return False
        if count >= chosen.count:
            return self._one(claim, request + 1, 0)
        if len(self.results[claim]) + chosen.count - count > MOST_RESULTS:
            raise _TooMany
        if chosen.all:
            device, one, pool = chosen.everything[count]
            if not self._take(claim, chosen, device, one, pool, must=True):
                return False
            return self._or_give_back(claim, request, option, count, 0)
        if chosen.candidates is None:
            chosen.candidates = self.allocator.candidates(self.node, self.pools, chosen)
        at = max(start, 0)
        while (candidate := chosen.candidates.at(at)) is not None:
            at += 1
            device, one, pool = candidate
            if (
                not self._is_in_use(claim, chosen, device)
                and self._is_suitable(self.claims[claim], chosen, device, one)
                and self._has_capacity(chosen, device)
                and self._take(claim, chosen, device, one, pool, must=False)
                and self._or_give_back(claim, request, option, count, at)
            ):
                return True
        return False

    def _or_give_back(self, claim: int, request: int, option: int, count: int, at: int) -> bool:
        done = False
        try:
            done = self._one(claim, request, option, count + 1, at)
        finally:
            if not done:
                self._give_back(claim)
        return done

    def _first_available(self, claim: int, request: int) -> bool:
        options, all_too_many = self.requests[claim][request], True
        for option in range(len(options)):
            try:
                done = self._one(claim, request, option, 0, -1)
            except _TooMany:
                continue
            all_too_many = False
            if done:
                options[0].choice = option
                return True
        if all_too_many:
            raise _TooMany
        return False

    def _is_in_use(self, claim: int, request: _Request, device: DeviceView) -> bool:
        if request.admin:
            return claim in self.taking.get(device.id, ())
        state = self.state
        is_held = device.id in state.devices if device.shared else state.holds(device.id)
        return is_held or bool(self.taking.get(device.id))

    def _is_suitable(
        self, claim: Manifest, request: _Request, device: DeviceView, one: SliceView
    ) -> bool:
        """Return whether the selectors of class and request admit a device (``isSelectable``)."""
        if not self.features.binding_conditions and device.manifest.get("bindingConditions"):
            return False
        key = (device.id, id(request))
        if (cached := self.suits.get(key)) is None:
            name = request.spec["deviceClassName"]
            of_class = (self.allocator.classes[name].get("spec") or {}).get("selectors") or ()
            cached = self.suits[key] = (
                self._selected(f"class {name}", of_class, device)
                and self._selected(
                    f"claim {full_name(claim)}", request.spec.get("selectors") or (), device
                )
                and (not one.by_device or device.place.matches(self.node))
            )
        return cached

    def _selected(self, whose: str, selectors: Sequence[Manifest], device: DeviceView) -> bool:
        for index, selector in enumerate(selectors):
            where = f"{whose}: selector #{index}"
            try:
                expression = selector["cel"]["expression"]
                if not device.matches(expression, lists=self.features.list_attributes):
                    return False
            except CompileError as error:
                raise AllocationError(f"{where}: CEL compile error: {error}") from None
            except EvaluationError as error:
                raise AllocationError(f"{where}: CEL runtime error: {error}") from None
        return True

    def _has_capacity(self, request: _Request, device: DeviceView) -> bool:
        if not self.features.consumable_capacity:
            return True
        _, taking = self.sharing.get(device.id, (0, {}))
        amounts, capacities = request.capacities_of(device), device.capacities
        if not device.shared:
            # An exclusive device is taken as a whole; the request still has to be a sound one.
            return capacity.fits(amounts, capacities)
        held = self.state.consumed.get(device.id, {})
        return capacity.fits(amounts, capacities, held, taking)

    def _take(
        self, claim: int, request: _Request, device: DeviceView, one: SliceView, pool: Pool, *,
        must: bool,
    ) -> bool:  # fmt: skip
        """Take a device if it is free and allowed (``allocateDevice``)."""
        shared = self.features.consumable_capacity and device.shared
        if not (shared and request.admin) and self._is_in_use(claim, request, device):
            return False
        counted = bool(device.consumes)
        if counted and not self.features.partitionable_devices:
            return False
        in_use = device.id in self.state.consumed or device.id in self.sharing
        if counted and not (shared and in_use) and not self._has_counters(device, pool):
            return False
        if self.features.device_taints and is_repelled(device, request.spec):
            return False
        done: list[_Constraint] = []
        for constraint in self.constraints[claim]:
            if not constraint.add(request, device):
                if must:
                    raise AllocationError(
                        f"claim {full_name(self.claims[claim])}, request {request.name}: cannot "
                        f"add device {device} because a claim constraint would not be satisfied"
                    )
                break
            done.append(constraint)
        if len(done) < len(self.constraints[claim]) or not self._has_capacity(request, device):
            for constraint in done:
                constraint.remove(request)
            return False
        consumed = None
        if shared:
            consumed = capacity.consumed_by_request(
                request.capacities_of(device), device.capacities
            )
            users, total = self.sharing.get(device.id, (0, {}))
            total = dict(total)
            capacity.add(total, consumed)
            self.sharing[device.id] = (users + 1, total)
        else:
            self.taking.setdefault(device.id, set()).add(claim)
        self.results[claim].append(_Result(request, device, one, consumed))
        return True

    def _give_back(self, claim: int) -> None:
        """Free the device that a claim took last, to try another one."""
        last = self.results[claim].pop()
        for constraint in self.constraints[claim]:
            constraint.remove(last.request)
        if last.consumed is None:
            self.taking[last.device.id].discard(claim)
            return
        users, total = self.sharing.pop(last.device.id)
        if users > 1:
            capacity.subtract(total, last.consumed)
            self.sharing[last.device.id] = (users - 1, total)

    def _has_counters(self, device: DeviceView, pool: Pool) -> bool:
        """Return whether the pool's counters are enough for one more device."""
        if (free := self.available.get(pool.id)) is None:
            free = {name: dict(counters) for name, counters in pool.counter_sets.items()}
            for other in (d for s in (*pool.slices, *pool.others) for d in s.devices):
                if other.consumes and self.state.holds(other.id):
                    _subtract(free, other)
            self.available[pool.id] = free
        rest = {name: dict(counters) for name, counters in free.items()}
        for other_id in {result.device.id for results in self.results for result in results}:
            if other_id[:2] == pool.id and not self.state.holds(other_id):
                _subtract(rest, self._device(other_id))
        _subtract(rest, device)
        return all(amount.sign >= 0 for counters in rest.values() for amount in counters.values())

    def _device(self, device_id: DeviceId) -> DeviceView:
        return next(
            r.device for results in self.results for r in results if r.device.id == device_id
        )

    # --- The result ---

    def allocation(self, index: int) -> Manifest:
        """Return the AllocationResult of a claim."""
        claim, results = self.claims[index], self.results[index]
        devices: Manifest = {"results": [self._result(result) for result in results]}
        if config := self._config(index, claim):
            devices["config"] = config
        allocation: Manifest = {"devices": devices}
        try:
            selector = _node_selector(results, self.node.name)
        except AllocationError as error:
            name = claim["metadata"]["name"]
            raise AllocationError(f"create NodeSelector for claim {name}: {error}") from None
        if selector is not None:
            allocation["nodeSelector"] = selector
        return allocation

    def _result(self, result: _Result) -> Manifest:
        driver, pool, name = result.device.id
        device: Manifest = {
            "request": result.request.full_name, "driver": driver, "pool": pool, "device": name,
        }  # fmt: skip
        if result.request.admin:
            device["adminAccess"] = True
        if tolerations := result.request.spec.get("tolerations"):
            device["tolerations"] = tolerations
        if self.features.binding_conditions:
            for field in ("bindingConditions", "bindingFailureConditions"):
                if conditions := result.device.manifest.get(field):
                    device[field] = conditions
        if result.consumed is not None:
            device["shareID"] = self.allocator.share_id()
            if published := result.device.manifest.get("capacity"):
                device["consumedCapacity"] = {
                    each: str(result.consumed[each.removeprefix(f"{driver}/")])
                    for each in published
                }
        return device

    def _config(self, index: int, claim: Manifest) -> list[Manifest]:
        """Return the configuration of classes, once each, and of the claim."""
        picked = [options[options[0].choice] for options in self.requests[index]]
        entries: list[Manifest] = []
        places: dict[str, tuple[int, int]] = {}
        for request in picked:
            name = request.spec["deviceClassName"]
            if name in places:
                for entry in entries[slice(*places[name])]:
                    entry["requests"].append(request.full_name)
                continue
            begin = len(entries)
            of_class = (self.allocator.classes[name].get("spec") or {}).get("config") or ()
            entries += [
                {"source": "FromClass", "requests": [request.full_name], **config}
                for config in of_class
            ]
            places[name] = (begin, len(entries))
        for config in asked_devices(claim).get("config") or ():
            named = config.get("requests") or []
            entry = {**config, "source": "FromClaim", "requests": list(named)}
            if not named:
                entries.append(entry)
            entries += [dict(entry) for r in picked if any(name in named for name in r.names)]
        for entry in entries:
            if not entry["requests"]:
                del entry["requests"]
        return entries


def is_repelled(device: DeviceView, request: Manifest) -> bool:
    """Return whether a device's taints, which a request does not tolerate, exclude the device."""
    tolerations = request.get("tolerations") or ()
    return any(
        taint.get("effect") in ("NoSchedule", "NoExecute")
        and not any(tolerates(toleration, taint) for toleration in tolerations)
        for taint in device.taints
    )


def _subtract(free: dict[str, dict[str, Quantity]], device: DeviceView) -> None:
    for name, counters in device.consumes:
        for counter, amount in counters.items():
            if counter in free.get(name, ()):
                free[name][counter] = free[name][counter].sub(amount)


def _node_selector(results: Sequence[_Result], node: str) -> Manifest | None:
    """Return where the allocation can be used, ``None`` if everywhere (``createNodeSelector``)."""
    expressions: list[Manifest] = []
    fields: list[Manifest] = []
    for result in results:
        place = result.device.place if result.slice.by_device else result.slice.place
        if place.node_name is not None or result.device.manifest.get("bindsToNode"):
            return only_node(node)
        terms = (place.selector or {}).get("nodeSelectorTerms") or ()
        if len(terms) > 1:
            raise AllocationError(f"unsupported ResourceSlice.NodeSelector with {len(terms)} terms")
        for term in terms:
            _add_new(fields, term.get("matchFields") or ())
            _add_new(expressions, term.get("matchExpressions") or ())
    term = {
        **({"matchExpressions": expressions} if expressions else {}),
        **({"matchFields": fields} if fields else {}),
    }
    return {"nodeSelectorTerms": [term]} if term else None


def only_node(name: str) -> Manifest:
    """Return the node selector that one node alone matches."""
    only = {"key": "metadata.name", "operator": "In", "values": [name]}
    return {"nodeSelectorTerms": [{"matchFields": [only]}]}


def _add_new(requirements: list[Manifest], more: Sequence[Manifest]) -> None:
    def identity(one: Manifest) -> tuple[Any, ...]:
        return one["key"], one["operator"], frozenset(one.get("values") or ())

    have = set(map(identity, requirements))
    for one in more:
        if identity(one) not in have:
            have.add(identity(one))
            requirements.append(one)
