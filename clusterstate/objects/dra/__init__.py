"""Dynamic resource allocation (resource.k8s.io/v1): the rules, on plain values.

``resourceclaim`` says whose a claim is and who may use it; ``capacity`` what a request takes of a
shared device; ``slices`` reads what drivers tell; ``pools`` puts slices together; ``allocated``
counts what claims hold; ``allocator`` finds devices for claims on one node, the form of upstream's
structured allocator that a person can read beside it; ``counting`` knows for which claims a number
says where they fit; ``slicetracker`` adds the taints of rules;
``world`` is what is known of a cluster; ``attempt`` follows one pod through every point of
scheduling, ``scoring`` scores an allocation, and ``extended`` serves extended resources by device
classes; ``holders`` says which claims hold which devices. ``claimcontroller`` makes and removes
claims; ``tainteviction`` says which pods tainted devices evict.

Objects are manifests, as stored. Names are upstream's (k8s.io/dynamic-resource-allocation, v1.36).
"""
