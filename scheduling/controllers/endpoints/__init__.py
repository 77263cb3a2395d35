"""Endpoints: the addresses of the pods that a Service selects, for proxies and programs.

::

    follower    which Services to process, what is read and written for them
    slices      the EndpointSlices of a Service: which to create, change and delete
    legacy      the Endpoints of a Service, which older programs read
    mirrors     EndpointSlices for Endpoints that a client wrote
    pods        the pods of a namespace, read once for all of its Services
    targets     a pod as a Service sees it: its address, its ports, whether it is ready

A pod has an address when the agent of its node has reported one; nothing here invents addresses.
Services without a selector are not touched: a client writes their Endpoints, which ``mirrors``
copies to slices.
"""
