"""Endpoints: the addresses of the pods that a Service selects, for proxies and programs.

::

    follower    which Services to look at, what is read and written for them
    slices      the EndpointSlices of a Service: which to make, change and delete
    legacy      the Endpoints of a Service, which older programs read
    mirrors     the EndpointSlices that show Endpoints which a client wrote
    pods        the pods of a namespace, read once for all of its Services
    targets     what a pod is to a Service: its address, its ports, whether it is ready

A pod has an address when the agent of its node has reported one; nothing here invents addresses.
Services without a selector are left alone: the client that wrote their Endpoints keeps them, and
slices show them.
"""
