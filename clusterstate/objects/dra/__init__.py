"""Dynamic resource allocation (resource.k8s.io/v1): the rules, on plain values.

``resourceclaim``: owners and users of claims; ``capacity``: what a request consumes of a shared
device; ``slices`` parses ResourceSlices; ``pools`` joins slices; ``allocated`` counts what claims
hold; ``allocator`` finds devices for claims on one node, in a form close to upstream's structured
allocator; ``counting`` finds claims for which a number of free devices is enough; ``slicetracker``
adds the taints of rules; ``world`` is the state of a cluster; ``attempt`` follows one pod through
every point of scheduling, ``scoring`` scores an allocation, and ``extended`` maps extended
resources to device classes; ``holders``: which claims hold which devices. ``claimcontroller``
creates and deletes claims; ``tainteviction``: which pods tainted devices evict.

Objects are manifests, as stored. Names are upstream's (k8s.io/dynamic-resource-allocation, v1.36).
"""
