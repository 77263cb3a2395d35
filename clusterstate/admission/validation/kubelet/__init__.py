"""Parts of a pod that only the agent of its node reads.

::

    environment, mounts, probes                 parts of a container
    volumes, volume_files, projected_volumes    volumes of a pod
    security                                    security contexts
"""
