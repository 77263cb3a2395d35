"""Writers of single kinds, where a kind needs more than ``actions.writing.Writer``.

::

    nodes, eviction_warnings    taints of nodes and their times; what a dry run warns of
    events                      Events, recorded in bulk or created by clients
    services                    cluster IPs and node ports
    pod_groups                  conditions of many groups at once
    roles                       nobody grants a right that they do not have
    certificates                approving and signing needs a right for that signer
    quota_writer                ResourceQuotas, counted again when they change
"""
