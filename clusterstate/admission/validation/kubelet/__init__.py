"""Parts of a pod that only the kubelet reads.

::

    environment, mounts, probes                 parts of a container
    volumes, volume_files, projected_volumes    volumes of a pod
    security                                    security contexts
"""
